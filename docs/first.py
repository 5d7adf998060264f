import numpy as np
import reorder

x = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
m = reorder.reorder(x, "nChw8c")
print(m.desc, m.desc.padded_dims, m.nbytes, (reorder.reorder(m, "nhwc").numpy() == x).all())
