"""The machine that reorders are scheduled for, as a value: schedules ask nothing else."""

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.system import is_arm

# The cache line of all current processors with these vector instructions except Apple's: theirs has
# 128 bytes, and alignment to 64 bytes is correct there too.
LINE_BITS = 512
LINE_NBYTES = LINE_BITS // BYTE_BITS
# Shuffles within lanes of this many bits are one instruction on all processors.
LANE_BITS = 128
# Distance between words that different threads write: on ARM the cache line of Apple's processors.
SHARED_NBYTES = 2 * LINE_NBYTES if is_arm() else LINE_NBYTES
# The page of virtual memory: x86 prefetchers stop at its end.
PAGE_NBYTES = 4096
# Lines that a set of the first-level cache holds: 8 to 12 on x86, with equal results for strides
# that are powers of two. Lines at the same place in their pages are in one set.
CACHE_WAYS = 8
# How many pages the L2 prefetcher follows at once (32 in Intel processors since 2008).
PREFETCHED_PAGES = 32
# With fewer bytes of src and dst per thread than this, non-temporal stores do not pay off;
# measured.
LEAST_STREAMED_NBYTES = 8 << 20
# Private cache of a core if the system reports none: the smallest among servers since 2017.
OWN_CACHE_NBYTES = 1 << 20


class Instructions(NamedTuple):
    """Which of the instructions that schedules ask for a processor has."""

    # loads and stores of some elements of a vector, of any width: AVX-512BW
    masks: bool = False
    # permutations of the bytes of a cache line, not only of pairs of them: AVX-512 VBMI
    permutes_lines: bool = False
    # fused multiply-add
    fma: bool = False


class Machine(NamedTuple):
    """What the schedule of a reorder depends on."""

    # cores that this process may use, within the user's limit
    threads: int
    # bytes of src and dst that the caches of all cores hold
    cache_nbytes: int
    # bytes of the largest cache that is private to a core
    own_cache_nbytes: int = OWN_CACHE_NBYTES
    # with at least this many bytes of src and dst per thread, non-temporal stores write whole lines
    streamed_nbytes: int = LEAST_STREAMED_NBYTES
    # every thread must write at least this many bytes: moving them costs as much as waking it
    min_thread_nbytes: int = 1 << 16
    # with at least this many bytes of dst, transpositions write whole lines wherever dst starts;
    # smaller ones gain less than the boxes at both ends of rotated rows cost
    filled_nbytes: int = 1 << 16
    # what the processor that kernels are compiled for has; by default none of these
    instructions: Instructions = Instructions()

    def exceeds_cache(self, nbytes: int) -> bool:
        """Whether src and dst exceed three quarters of the caches: other code needs the rest."""
        return nbytes > self.cache_nbytes * 3 // 4

    def streams(self, nbytes: int, threads: int) -> bool:
        """Whether whole lines are written by non-temporal stores."""
        return self.exceeds_cache(nbytes) or self.exceeds_parts(nbytes, threads)

    def exceeds_parts(self, nbytes: int, threads: int) -> bool:
        """Whether the data of each thread exceeds half of its core's share of all caches."""
        return nbytes > threads * self.streamed_nbytes

    def exceeds_own_cache(self, nbytes: int) -> bool:
        """Whether src and dst exceed the private cache of a core: shared caches are far slower."""
        return nbytes > self.own_cache_nbytes
