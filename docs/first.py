import numpy as np
import reorder

x = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
m = reorder.reorder(x, "nChw8c")
print(m.desc.padded_dims, m.nbytes, m.desc.offset((1, 9, 2, 3)))
print(*(name.text for name in m.desc.names()))
print((reorder.reorder(m, "nhwc").numpy() == x).all())
