// cub::DeviceScan::InclusiveSumByKey where a key is whether a segment starts: neighbours are of
// one segment where the later of them starts none. So CUB reads what our scan of segments reads.

#include <cub/device/device_scan.cuh>

struct GoesOn {
    __device__ bool operator()(unsigned char, unsigned char later) const { return !later; }
};

// With no `room` it only says how much is needed.
extern "C" int sum_by_key(
    void* room, size_t* bytes, const unsigned char* heads, const float* x, float* out, long long n,
    void* stream)
{
    return cub::DeviceScan::InclusiveSumByKey(
        room, *bytes, heads, x, out, n, GoesOn{}, static_cast<cudaStream_t>(stream));
}
