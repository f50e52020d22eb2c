// Textures and surfaces, lane by lane: addressing, filtering, conversion. Where the hardware is not
// specified, results are computed in double precision and rounded once; filter weights have 8 bits
// of fraction, as the CUDA programming guide says.
#define SIMGPU_ARCH scalar
#include "ptx/handlers/textures.h"

#include <initializer_list>

#include "ptx/lanes/real.h"

namespace simgpu::ptx {

namespace {

using scalar::bits;

// libm is not available: the engine imports libc alone.
double floor_of(double x) {
  if (!(x > -4e15 && x < 4e15)) return x;
  auto n = (double)(int64_t)x;
  return n > x ? n - 1 : n;
}
int64_t whole(double x) {  // floor, kept within what sizes can be
  if (!(x == x)) return 0;
  if (x < -1e9) return -1000000000;
  if (x > 1e9) return 1000000000;
  return (int64_t)floor_of(x);
}

// A texel, as raw channels and as numbers.
struct Texel {
  uint32_t raw[4];
  double real[4];
};

class Sampler {
 public:
  Sampler(Ctx& c, uint32_t lane, const Texture& texture) : c_(c), lane_(lane), texture_(texture) {}
  uint64_t bad_address = 0;

  // Integer results are wanted, or the format has no other reading.
  bool integers() const {
    return texture_.channel != ChannelKind::kFloat && !texture_.read_normalized;
  }

  bool sample(const TextureLevel& level, Geometry g, const double* at, int64_t slice, bool integer,
              const int32_t* offset, Texel* out) {
    const unsigned n = dimensions(g);
    int64_t low[3] = {0, 0, 0};
    double weight[3] = {0, 0, 0};
    const bool linear = texture_.filter == Filter::kLinear && !integer && !integers();
    for (unsigned d = 0; d < n; ++d) {
      double x = at[d];
      if (!integer && texture_.normalized) x *= (double)size(level, d);
      if (offset) x += offset[d];
      if (linear) {
        x -= 0.5;
        const double below = floor_of(x);
        weight[d] = floor_of((x - below) * 256 + 0.5) / 256;  // 9 bits, 8 of them fraction
        low[d] = whole(x);
      } else {
        low[d] = whole(x);
      }
    }
    if (!linear) return texel(level, n, low, slice, integer, out);
    *out = Texel{};
    for (unsigned corner = 0; corner < 1u << n; ++corner) {
      int64_t index[3] = {0, 0, 0};
      double share = 1;
      for (unsigned d = 0; d < n; ++d) {
        const bool upper = corner >> d & 1;
        index[d] = low[d] + upper;
        share *= upper ? weight[d] : 1 - weight[d];
      }
      if (share == 0) continue;
      Texel t;
      if (!texel(level, n, index, slice, false, &t)) return false;
      for (int k = 0; k < 4; ++k) out->real[k] += share * t.real[k];
    }
    return true;
  }

  // The four texels that a bilinear filter would use, one channel of each.
  bool gather(const TextureLevel& level, const double* at, int64_t slice, const int32_t* offset,
              unsigned component, Texel* out) {
    int64_t low[3] = {0, 0, 0};
    for (unsigned d = 0; d < 2; ++d) {
      double x = at[d];
      if (texture_.normalized) x *= (double)size(level, d);
      if (offset) x += offset[d];
      low[d] = whole(x - 0.5);
    }
    static const int kX[4] = {0, 1, 1, 0}, kY[4] = {1, 1, 0, 0};
    for (int k = 0; k < 4; ++k) {
      const int64_t index[3] = {low[0] + kX[k], low[1] + kY[k], 0};
      Texel t;
      if (!texel(level, 2, index, slice, false, &t)) return false;
      out->raw[k] = t.raw[component];
      out->real[k] = t.real[component];
    }
    return true;
  }

  static unsigned dimensions(Geometry g) {
    switch (g) {
      case Geometry::k1D:
      case Geometry::k1DLayered:
        return 1;
      case Geometry::k3D:
        return 3;
      default:
        return 2;
    }
  }
  static uint32_t size(const TextureLevel& level, unsigned d) {
    const uint32_t n = d == 0 ? level.width : d == 1 ? level.height : level.depth;
    return n == 0 ? 1 : n;
  }

 private:
  // Returns false if the texel is outside and the border colour is used.
  bool place(int64_t* index, uint32_t n, AddressMode mode) const {
    if (*index >= 0 && *index < n) return true;
    if (!texture_.normalized && (mode == AddressMode::kWrap || mode == AddressMode::kMirror))
      mode = AddressMode::kClamp;
    switch (mode) {
      case AddressMode::kWrap:
        *index = (*index % (int64_t)n + n) % n;
        return true;
      case AddressMode::kMirror: {
        int64_t m = (*index % (2 * (int64_t)n) + 2 * (int64_t)n) % (2 * (int64_t)n);
        *index = m < n ? m : 2 * (int64_t)n - 1 - m;
        return true;
      }
      case AddressMode::kClamp:
        *index = *index < 0 ? 0 : n - 1;
        return true;
      case AddressMode::kBorder:
        break;
    }
    return false;
  }

  bool texel(const TextureLevel& level, unsigned n, const int64_t* at, int64_t slice, bool integer,
             Texel* out) {
    int64_t index[3] = {at[0], at[1], at[2]};
    for (unsigned d = 0; d < n; ++d) {
      // Linear memory has no address mode: texels beyond its end are zeros.
      const bool linear = texture_.kind == TextureKind::kLinear;
      const AddressMode mode = linear ? AddressMode::kBorder : texture_.address[d];
      if (!place(&index[d], size(level, d), mode)) {
        border(linear, out);
        return true;
      }
    }
    (void)integer;
    const unsigned bytes = texture_.channels * texture_.channel_bits / 8u;
    const uint64_t where = (uint64_t)index[0] * bytes + (uint64_t)index[1] * level.row_pitch +
                           (uint64_t)(n == 3 ? index[2] : slice) * level.slice_pitch;
    uint8_t data[16];
    if (level.host) {
      memcpy(data, level.host + where, bytes);
    } else if (!read_bytes(c_, lane_, level.device + where, data, bytes)) {
      bad_address = level.device + where;
      return false;
    }
    decode(data, out);
    return true;
  }

  void border(bool zero, Texel* out) const {
    for (int k = 0; k < 4; ++k) {
      const float v = zero ? 0.0f : texture_.border[k];
      out->real[k] = v;
      out->raw[k] = integers() ? (uint32_t)(int64_t)v : bits<uint32_t>(v);
    }
  }

  void decode(const uint8_t* data, Texel* out) const {
    for (unsigned k = 0; k < 4; ++k) {
      if (k >= texture_.channels) {  // x, then 0, 0, 1
        const bool one = k == 3;
        out->real[k] = one;
        out->raw[k] = integers() ? one : bits<uint32_t>(one ? 1.0f : 0.0f);
        continue;
      }
      uint32_t v = 0;
      memcpy(&v, data + k * texture_.channel_bits / 8u, texture_.channel_bits / 8u);
      const bool is_signed = texture_.channel == ChannelKind::kSigned;
      if (texture_.channel == ChannelKind::kFloat) {
        const float f =
            texture_.channel_bits == 16 ? scalar::half_to_float((uint16_t)v) : bits<float>(v);
        out->real[k] = f;
        out->raw[k] = bits<uint32_t>(f);
        continue;
      }
      if (is_signed && texture_.channel_bits < 32) {
        const unsigned shift = 32 - texture_.channel_bits;
        v = (uint32_t)((int32_t)(v << shift) >> shift);
      }
      out->raw[k] = v;
      out->real[k] = is_signed ? (double)(int32_t)v : (double)v;
      if (!texture_.read_normalized || texture_.channel_bits == 32) continue;
      const double most = (double)((1u << (texture_.channel_bits - (is_signed ? 1 : 0))) - 1);
      double f = out->real[k] / most;
      if (f < -1) f = -1;
      if (texture_.srgb && k < 3 && texture_.channel_bits == 8 && !is_signed) f = linear_of(f);
      out->real[k] = (double)(float)f;
      out->raw[k] = bits<uint32_t>((float)f);
    }
  }
  // sRGB to linear: ((x + 0.055) / 1.055) ^ 2.4, by Newton's iteration for the fifth root.
  static double linear_of(double x) {
    if (x <= 0.04045) return x / 12.92;
    const double b = (x + 0.055) / 1.055, b2 = b * b;
    double r = b;  // b ^ (2 / 5)
    for (int k = 0; k < 40; ++k) r -= (r * r * r * r * r - b2) / (5 * r * r * r * r);
    return b2 * r;
  }

  Ctx& c_;
  const uint32_t lane_;
  const Texture& texture_;
};

bool geometry_fits(const Texture& texture, Geometry g) {
  switch (g) {
    case Geometry::k1D:
      return texture.kind == TextureKind::k1D || texture.kind == TextureKind::kLinear;
    case Geometry::k2D:
      return texture.kind == TextureKind::k2D;
    case Geometry::k3D:
      return texture.kind == TextureKind::k3D;
    case Geometry::k1DLayered:
      return texture.kind == TextureKind::k1DLayered;
    case Geometry::k2DLayered:
      return texture.kind == TextureKind::k2DLayered || texture.kind == TextureKind::kCubeLayered ||
             texture.kind == TextureKind::kCube;
    case Geometry::kCube:
      return texture.kind == TextureKind::kCube;
    case Geometry::kCubeLayered:
      return texture.kind == TextureKind::kCubeLayered;
  }
  return false;
}
bool layered(Geometry g) {
  return g == Geometry::k1DLayered || g == Geometry::k2DLayered || g == Geometry::kCubeLayered;
}

// Maps a direction to a face and a position on it in [0, 1].
unsigned cube_face(const double* v, double* s, double* t) {
  const double x = v[0], y = v[1], z = v[2];
  const double ax = x < 0 ? -x : x, ay = y < 0 ? -y : y, az = z < 0 ? -z : z;
  double m, u, w;
  unsigned face;
  if (ax >= ay && ax >= az) {
    face = x < 0;
    m = ax;
    u = x < 0 ? z : -z;
    w = -y;
  } else if (ay >= az) {
    face = 2 + (y < 0);
    m = ay;
    u = x;
    w = y < 0 ? -z : z;
  } else {
    face = 4 + (z < 0);
    m = az;
    u = z < 0 ? -x : x;
    w = -y;
  }
  if (m == 0) m = 1;
  *s = (u / m + 1) / 2;
  *t = (w / m + 1) / 2;
  return face;
}

int64_t clamp_slice(int64_t v, uint32_t count) {
  return v < 0 ? 0 : v >= (int64_t)count ? (count == 0 ? 0 : (int64_t)count - 1) : v;
}

const Ins* no_such_texture(Ctx& c, const Ins* i, uint64_t handle, const char* what) {
  return fault(c, i, Outcome::kIllegalAddress, handle, "0x%llx is no %s that fits the instruction",
               (unsigned long long)handle, what);
}

uint32_t word(Ctx& c, uint32_t operand, unsigned lane) {
  return operand == kNone ? 0 : reg32(c, operand)[lane];
}
double real(Ctx& c, uint32_t operand, unsigned lane) {
  return operand == kNone ? 0 : (double)bits<float>(reg32(c, operand)[lane]);
}

// log2 to 1/256 or better; used for levels of detail only.
double level_of(double squared) {
  if (!(squared > 0)) return -100;
  return 0.5 * (double)scalar::lg2_approx((float)squared);
}

// The sampler reference at an address; null: there is none.
const ReferenceInit* sampler_at(const Ctx& c, uint64_t address) {
  const Module& m = *c.module;
  for (uint32_t k = 0; k < m.variables.size(); ++k)
    if (m.variables[k].opaque == Opaque::kSampler && m.addresses[k] == address)
      return &m.variables[k].init;
  return nullptr;
}

// A texture as a sampler reference reads it.
Texture sampled_by(const ReferenceInit& s, Texture texture) {
  for (int d = 0; d < 3; ++d)
    texture.address[d] = s.address[d] < 0 ? AddressMode::kClamp : (AddressMode)s.address[d];
  texture.filter = s.filter == (int)Filter::kLinear ? Filter::kLinear : Filter::kPoint;
  if (s.normalized == 0) texture.normalized = false;
  return texture;
}

// One lane of a texture instruction.
bool sample_lane(Ctx& c, const Ins* i, const TextureShape& shape, const Texture& texture,
                 unsigned lane, Texel* out, uint64_t* bad) {
  const uint32_t* list = i->list;
  Sampler sampler(c, lane, texture);
  double at[3];
  unsigned k = kTexCoordinate;
  int64_t slice = 0;
  if (layered(shape.geometry)) slice = (int32_t)word(c, list[k++], lane);
  const bool cube = shape.geometry == Geometry::kCube || shape.geometry == Geometry::kCubeLayered;
  const unsigned n = cube ? 3 : Sampler::dimensions(shape.geometry);
  for (unsigned d = 0; d < n; ++d)
    at[d] =
        shape.integer ? (double)(int32_t)word(c, list[k + d], lane) : real(c, list[k + d], lane);
  const TextureLevel& base = texture.levels[0];
  if (cube) {
    double s, t;
    const unsigned face = cube_face(at, &s, &t);
    slice = clamp_slice(slice, base.depth / 6) * 6 + face;
    at[0] = s;
    at[1] = t;
  } else {
    slice = clamp_slice(slice, base.depth);
  }
  int32_t offset[3];
  for (unsigned d = 0; d < 3; ++d) offset[d] = (int32_t)word(c, list[kTexOffset + d], lane);
  const int32_t* shift = shape.offset ? offset : nullptr;
  bool good;
  if (shape.mode == TextureMode::kGather) {
    good = sampler.gather(base, at, slice, shift, shape.component, out);
    *bad = sampler.bad_address;
    return good;
  }
  double level = 0;
  if (shape.mode == TextureMode::kLevel)
    level = shape.integer ? (double)(int32_t)word(c, list[kTexLevel], lane)
                          : real(c, list[kTexLevel], lane);
  if (shape.mode == TextureMode::kGradient) {
    double longest = 0;
    for (unsigned which : {(unsigned)kTexDx, (unsigned)kTexDy}) {
      double sum = 0;
      for (unsigned d = 0; d < n; ++d) {
        double g = real(c, list[which + d], lane);
        if (texture.normalized) g *= Sampler::size(base, d);
        sum += g * g;
      }
      longest = sum > longest ? sum : longest;
    }
    level = level_of(longest);
  }
  if (texture.level_count > 1) {
    level += (double)texture.mipmap_bias;
    level = level < (double)texture.mipmap_min ? (double)texture.mipmap_min : level;
    level = level > (double)texture.mipmap_max ? (double)texture.mipmap_max : level;
  }
  const double last = texture.level_count - 1;
  level = level < 0 ? 0 : level > last ? last : level;
  if (texture.mipmap_filter == Filter::kPoint || sampler.integers() || shape.integer) {
    good = sampler.sample(texture.levels[whole(level + 0.5)], shape.geometry, at, slice,
                          shape.integer, shift, out);
  } else {
    const int64_t low = whole(level);
    const double share = floor_of((level - (double)low) * 256 + 0.5) / 256;
    good = sampler.sample(texture.levels[low], shape.geometry, at, slice, false, shift, out);
    if (good && share > 0 && low < (int64_t)last) {
      Texel upper;
      good =
          sampler.sample(texture.levels[low + 1], shape.geometry, at, slice, false, shift, &upper);
      for (int x = 0; x < 4; ++x) out->real[x] = out->real[x] * (1 - share) + upper.real[x] * share;
    }
  }
  *bad = sampler.bad_address;
  return good;
}

}  // namespace

const Ins* op_texture(Ctx& c, const Ins* i) {
  const TextureShape shape = TextureShape::unpack(i->imm);
  Textures* textures = c.grid->launch->textures;
  const uint64_t* handles = reg64(c, i->a);
  const uint64_t* samplers = i->b == kNone ? nullptr : reg64(c, i->b);
  const Texture* texture = nullptr;
  Texture resampled;
  uint64_t known = 0, known_sampler = 0;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t by = samplers ? samplers[l] : 0;
    if (!texture || handles[l] != known || by != known_sampler) {
      known = handles[l];
      known_sampler = by;
      texture = textures ? textures->texture(known) : nullptr;
      if (!texture || texture->level_count == 0 || !geometry_fits(*texture, shape.geometry))
        return no_such_texture(c, i, known, "texture");
      if (samplers) {
        const ReferenceInit* sampler = sampler_at(c, by);
        if (!sampler) return no_such_texture(c, i, by, "sampler");
        resampled = sampled_by(*sampler, *texture);
        texture = &resampled;
      }
    }
    Texel t{};
    uint64_t bad = 0;
    if (!sample_lane(c, i, shape, *texture, l, &t, &bad))
      return fault(c, i, Outcome::kIllegalAddress, bad,
                   "texture fetch at 0x%llx is outside every allocation", (unsigned long long)bad);
    const bool integers = texture->channel != ChannelKind::kFloat && !texture->read_normalized;
    if (shape.result == Ty::kF16x2) {
      for (unsigned k = 0; k < 2; ++k) {
        if (i->list[k] == kNone) continue;
        const uint32_t low = scalar::double_to_half(t.real[2 * k]),
                       high = scalar::double_to_half(t.real[2 * k + 1]);
        reg32(c, i->list[k])[l] = low | high << 16;
      }
    } else {
      for (unsigned k = 0; k < 4; ++k)
        if (i->list[k] != kNone)
          reg32(c, i->list[k])[l] = integers ? t.raw[k] : bits<uint32_t>((float)t.real[k]);
    }
    if (i->e != kNone) reg32(c, i->e)[l] = ~0u;
  }
  return i + 1;
}

namespace {

// Applies f, which reads and replaces `bytes` bytes, where a texel of a surface lies. The x
// coordinate counts bytes, or texels in formatted accesses.
template <class F>
const Ins* at_surface(Ctx& c, const Ins* i, const SurfaceShape& shape, const Texture& texture,
                      unsigned lane, unsigned bytes, F f) {
  const TextureLevel& level = texture.levels[0];
  const uint32_t* list = i->list + kSurfCoordinate;
  unsigned k = 0;
  int64_t slice = 0, index[3] = {0, 0, 0};
  if (layered(shape.geometry)) slice = (int32_t)word(c, list[k++], lane);
  const unsigned n = Sampler::dimensions(shape.geometry);
  for (unsigned d = 0; d < n; ++d) index[d] = (int32_t)word(c, list[k + d], lane);
  if (n < 3) index[2] = slice;
  const unsigned texel_bytes = texture.channels * texture.channel_bits / 8u;
  if (shape.formatted) index[0] *= texel_bytes;
  const int64_t row = (int64_t)level.width * texel_bytes;
  const int64_t sizes[3] = {row, Sampler::size(level, 1), Sampler::size(level, 2)};
  if (index[0] % bytes != 0)
    return fault(c, i, Outcome::kMisaligned, (uint64_t)index[0],
                 "surface access of %u bytes at x = %lld is misaligned", bytes,
                 (long long)index[0]);
  bool outside = false;
  for (unsigned d = 0; d < 3; ++d) {
    const int64_t most = d == 0 ? sizes[0] - bytes : sizes[d] - 1;
    if (index[d] >= 0 && index[d] <= most) continue;
    outside = true;
    if (shape.outside == Outside::kClamp) index[d] = index[d] < 0 || most < 0 ? 0 : most;
  }
  if (row < bytes) return no_such_texture(c, i, 0, "surface");
  if (outside && shape.outside == Outside::kTrap)
    return fault(c, i, Outcome::kTrap, (uint64_t)index[0],
                 "surface access at (%lld, %lld, %lld) is outside", (long long)index[0],
                 (long long)index[1], (long long)index[2]);
  if (outside && shape.outside == Outside::kZero) {
    f(nullptr);
    return i + 1;
  }
  const uint64_t where = (uint64_t)index[0] + (uint64_t)index[1] * level.row_pitch +
                         (uint64_t)index[2] * level.slice_pitch;
  uint8_t* p = level.host + where;
  if (!level.host) {
    bool local = false;
    p = resolve(c, level.device + where, bytes, true, &local);
    if (!p)
      return fault(c, i, Outcome::kIllegalAddress, level.device + where,
                   "surface access at 0x%llx is outside every allocation",
                   (unsigned long long)(level.device + where));
  }
  f(p);
  return i + 1;
}

// A channel in a surface's format, from 32 bits; integers saturate.
uint32_t formatted(const Texture& texture, uint32_t v) {
  const unsigned width = texture.channel_bits;
  switch (texture.channel) {
    case ChannelKind::kFloat:
      return width == 16 ? scalar::float_to_half(bits<float>(v)) : v;
    case ChannelKind::kSigned: {
      const int64_t most = (1ll << (width - 1)) - 1, x = (int32_t)v;
      return (uint32_t)(x > most ? most : x < -most - 1 ? -most - 1 : x);
    }
    default:
      return width < 32 && v >> width != 0 ? (1u << width) - 1 : v;
  }
}

template <class T>
void reduce_at(uint8_t* p, SurfaceAccess op, T v) {
  auto* cell = reinterpret_cast<T*>(p);
  T old = __atomic_load_n(cell, __ATOMIC_RELAXED), now;
  do {
    switch (op) {
      case SurfaceAccess::kAdd:
        now = (T)(old + v);
        break;
      case SurfaceAccess::kMin:
        now = v < old ? v : old;
        break;
      case SurfaceAccess::kMax:
        now = v > old ? v : old;
        break;
      case SurfaceAccess::kAnd:
        now = old & v;
        break;
      default:
        now = old | v;
        break;
    }
  } while (
      !__atomic_compare_exchange_n(cell, &old, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

}  // namespace

const Ins* op_surface(Ctx& c, const Ins* i) {
  const SurfaceShape shape = SurfaceShape::unpack(i->imm);
  Textures* textures = c.grid->launch->textures;
  const uint64_t* handles = reg64(c, i->a);
  const unsigned each = type_bytes(shape.type);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const Texture* texture = textures ? textures->surface(handles[l]) : nullptr;
    if (!texture || texture->level_count == 0 || !geometry_fits(*texture, shape.geometry))
      return no_such_texture(c, i, handles[l], "surface");
    const bool signed_sum =
        shape.type == Ty::kS32 || (shape.formatted && texture->channel == ChannelKind::kSigned);
    if (shape.formatted && shape.access != SurfaceAccess::kStore &&
        (texture->channel_bits != 32 || texture->channels != 1 ||
         texture->channel == ChannelKind::kFloat))
      return no_such_texture(c, i, handles[l], "surface of 32-bit integers");
    const unsigned bytes =
        shape.formatted ? texture->channels * texture->channel_bits / 8u : each * i->n;
    const Ins* next = at_surface(c, i, shape, *texture, l, bytes, [&](uint8_t* p) {
      uint8_t data[16] = {};
      if (shape.access == SurfaceAccess::kLoad) {
        if (p) memcpy(data, p, bytes);
        for (unsigned k = 0; k < i->n; ++k) {
          uint64_t v = 0;
          memcpy(&v, data + k * each, each);
          if (i->list[k] == kNone) continue;
          if (shape.wide)
            reg64(c, i->list[k])[l] = v;
          else
            reg32(c, i->list[k])[l] = (uint32_t)v;
        }
        return;
      }
      if (!p) return;
      if (shape.formatted && shape.access == SurfaceAccess::kStore) {
        const unsigned width = texture->channel_bits / 8u;
        for (unsigned k = 0; k < i->n && k < texture->channels; ++k) {
          const uint32_t v = formatted(*texture, reg32(c, i->list[k])[l]);
          memcpy(p + k * width, &v, width);
        }
        return;
      }
      for (unsigned k = 0; k < i->n; ++k) {
        const uint64_t v = shape.wide ? reg64(c, i->list[k])[l] : (uint64_t)reg32(c, i->list[k])[l];
        memcpy(data + k * each, &v, each);
      }
      if (shape.access == SurfaceAccess::kStore) {
        memcpy(p, data, bytes);
        return;
      }
      uint64_t v = 0;
      memcpy(&v, data, each);
      if (signed_sum) return reduce_at<int32_t>(p, shape.access, (int32_t)v);
      switch (shape.type) {
        case Ty::kS64:
          return reduce_at<int64_t>(p, shape.access, (int64_t)v);
        case Ty::kU64:
        case Ty::kB64:
          return reduce_at<uint64_t>(p, shape.access, v);
        default:
          return reduce_at<uint32_t>(p, shape.access, (uint32_t)v);
      }
    });
    if (!next) return nullptr;
  }
  return i + 1;
}

const Ins* op_texture_query(Ctx& c, const Ins* i) {
  Textures* textures = c.grid->launch->textures;
  const uint64_t* handles = reg64(c, i->a);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const bool surface = i->sub & 1;
    const Texture* texture = !textures ? nullptr
                             : surface ? textures->surface(handles[l])
                                       : textures->texture(handles[l]);
    static const TextureLevel kNothing{};
    Texture sampler;
    if (const ReferenceInit* by = texture ? nullptr : sampler_at(c, handles[l])) {
      sampler = sampled_by(*by, Texture{});
      sampler.normalized = by->normalized != 0;
      sampler.level_count = 1;
      sampler.levels = &kNothing;
      texture = &sampler;
    }
    if (!texture || texture->level_count == 0)
      return no_such_texture(c, i, handles[l], surface ? "surface" : "texture");
    uint32_t at = i->b == kNone ? 0 : reg32(c, i->b)[l];
    if (at >= texture->level_count) at = texture->level_count - 1u;
    const TextureLevel& level = texture->levels[at];
    const bool slices = texture->kind != TextureKind::k3D;
    uint32_t v = 0;
    switch ((TextureQuery)i->imm) {
      case TextureQuery::kWidth:
        v = level.width;
        break;
      case TextureQuery::kHeight:
        v = level.height;
        break;
      case TextureQuery::kDepth:
        v = slices ? 1 : level.depth;
        break;
      case TextureQuery::kArraySize:
        v = texture->kind == TextureKind::kCube || texture->kind == TextureKind::kCubeLayered
                ? level.depth / 6
            : slices ? level.depth
                     : 1;
        break;
      case TextureQuery::kLevels:
        v = texture->level_count;
        break;
      case TextureQuery::kSamples:
        v = 1;
        break;
      case TextureQuery::kNormalized:
        v = texture->normalized;
        break;
      case TextureQuery::kUnnormalized:
        v = !texture->normalized;
        break;
      case TextureQuery::kFilter:
        v = (uint32_t)texture->filter;
        break;
      case TextureQuery::kAddress0:
      case TextureQuery::kAddress1:
      case TextureQuery::kAddress2:
        v = (uint32_t)texture->address[i->imm - (int64_t)TextureQuery::kAddress0];
        break;
      default:
        break;
    }
    reg32(c, i->d)[l] = v;
  }
  return i + 1;
}

}  // namespace simgpu::ptx
