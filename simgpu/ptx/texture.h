// Textures and surfaces as kernels see them: what the driver tells the engine about an object that
// cuTexObjectCreate or cuSurfObjectCreate made. The engine samples, filters, addresses and converts
// (texture.cc); the driver owns the objects and the memory behind them.
//
// A texture object's handle is any 64-bit number the driver likes; kernels pass it on unchanged.
// Layers of a layered texture and faces of a cube are slices: layer k is slice k, face f of cube k
// is slice 6 * k + f. Source: PTX ISA 9.0 (tex, tld4, txq, suld, sust, sured, suq), CUDA C++
// Programming Guide, appendix "Texture Fetching".
#pragma once

#include <cstddef>
#include <cstdint>

namespace simgpu::ptx {

enum class TextureKind : uint8_t {
  kLinear,       // device memory without height: cudaResourceTypeLinear; fetched by integers only
  k1D,           // an array with height 0
  k2D,           // an array, or pitched device memory (cudaResourceTypePitch2D)
  k3D,           // an array with a depth
  k1DLayered,    // slices of one row each
  k2DLayered,    // slices
  kCube,         // 6 slices
  kCubeLayered,  // 6 * layers slices
};
enum class ChannelKind : uint8_t { kUnsigned, kSigned, kFloat };
enum class AddressMode : uint8_t { kWrap, kClamp, kMirror, kBorder };  // as CUaddress_mode
enum class Filter : uint8_t { kPoint, kLinear };                       // as CUfilter_mode

// One mipmap level. Sizes are in texels (at least 1), pitches in bytes; a texel is `channels` times
// `channel_bits`, little endian, channels in the order x, y, z, w.
struct TextureLevel {
  // Where the texels are: either in this process (`host`, for arrays, whose place no kernel can
  // see), or, when that is null, at a device address, looked up in Launch::memory texel by texel,
  // so that memory freed or unmapped meanwhile faults as it should.
  uint8_t* host;
  uint64_t device;
  uint32_t width, height, depth;  // depth: of 3D textures, else the number of slices
  uint64_t row_pitch, slice_pitch;
};

struct Texture {
  TextureKind kind;
  ChannelKind channel;
  uint8_t channels;      // 1, 2 or 4
  uint8_t channel_bits;  // 8, 16 or 32
  uint8_t level_count;   // 1 when there are no mipmaps
  const TextureLevel* levels;

  // Sampling, of textures only (surfaces ignore it).
  AddressMode address[3];  // x, y, z. wrap and mirror work with normalised coordinates only, as on
                           // a GPU: else they clamp
  Filter filter, mipmap_filter;
  bool normalized;       // coordinates in [0, 1)
  bool read_normalized;  // 8- and 16-bit integers are read as floats in [0, 1] or [-1, 1]
  bool srgb;             // 8-bit channels x, y, z are decoded
  float border[4];
  float mipmap_bias, mipmap_min, mipmap_max;
};

// The driver's table of objects. Called by any worker while a grid runs.
class Textures {
 public:
  // Returns null if there is no such object; the launch ends in kIllegalAddress. The result is
  // valid until the object is destroyed and no launch of its context runs any more. A handle is an
  // object's, or the address of a reference of the module.
  virtual const Texture* texture(uint64_t handle) = 0;
  virtual const Texture* surface(uint64_t handle) = 0;

 protected:
  ~Textures() = default;  // trivial, so that a constant object needs no exit handler
};

}  // namespace simgpu::ptx
