// How texture and surface instructions are executed (textures.cc); lower.cc fills these in.
#pragma once

#include "ptx/run/ir.h"
#include "ptx/texture.h"

namespace simgpu::ptx {

enum class Geometry : uint8_t { k1D, k2D, k3D, k1DLayered, k2DLayered, kCube, kCubeLayered };
enum class TextureMode : uint8_t { kBase, kLevel, kGradient, kGather };

// Ins::imm of op_texture.
struct TextureShape {
  Geometry geometry;
  TextureMode mode;
  Ty result;          // kF32, kS32, kU32 or kF16x2
  uint8_t component;  // of a gather
  bool integer;       // coordinates are integers
  bool offset;
  int64_t pack() const {
    return (int64_t)((unsigned)geometry | (unsigned)mode << 8 | (unsigned)result << 16 |
                     (unsigned)component << 24 | (integer ? 1u << 28 : 0) |
                     (offset ? 1u << 29 : 0));
  }
  static TextureShape unpack(int64_t v) {
    return {(Geometry)(v & 255),     (TextureMode)(v >> 8 & 255), (Ty)(v >> 16 & 255),
            (uint8_t)(v >> 24 & 15), (v >> 28 & 1) != 0,          (v >> 29 & 1) != 0};
  }
};
// Ins::list of op_texture; what is absent is kNone. a: handle; b: address of a .samplerref, which
// says how to sample, or kNone; e: "resident" predicate.
enum TextureList : uint8_t {
  kTexResult = 0,      // 4, written
  kTexCoordinate = 4,  // layer first, then x, y, z
  kTexLevel = 8,
  kTexDx = 9,
  kTexDy = 12,
  kTexOffset = 15,
  kTexCount = 18,
};

enum class Outside : uint8_t { kTrap, kClamp, kZero };
enum class SurfaceAccess : uint8_t { kLoad, kStore, kAdd, kMin, kMax, kAnd, kOr };
// Ins::imm of op_surface: n is the vector width.
struct SurfaceShape {
  Geometry geometry;
  Outside outside;
  SurfaceAccess access;
  Ty type;
  bool wide;       // the registers are 64 bits wide
  bool formatted;  // texels rather than bytes, converted to the surface's format
  int64_t pack() const {
    return (int64_t)((unsigned)geometry | (unsigned)outside << 8 | (unsigned)access << 16 |
                     (unsigned)type << 24) |
           (wide ? 1ll << 32 : 0) | (formatted ? 1ll << 33 : 0);
  }
  static SurfaceShape unpack(int64_t v) {
    return {(Geometry)(v & 255), (Outside)(v >> 8 & 255), (SurfaceAccess)(v >> 16 & 255),
            (Ty)(v >> 24 & 255), (v >> 32 & 1) != 0,      (v >> 33 & 1) != 0};
  }
};
enum SurfaceList : uint8_t { kSurfValue = 0, kSurfCoordinate = 4, kSurfCount = 8 };

enum class TextureQuery : uint8_t {
  kWidth,
  kHeight,
  kDepth,
  kChannelType,
  kChannelOrder,
  kNormalized,
  kArraySize,
  kLevels,
  kSamples,
  kUnnormalized,
  kFilter,
  kAddress0,
  kAddress1,
  kAddress2,
  kMemoryLayout,
};

const Ins* op_texture(Ctx&, const Ins*);
const Ins* op_surface(Ctx&, const Ins*);
// d = query `imm` of a; b: the level or kNone; sub 1: of a surface.
const Ins* op_texture_query(Ctx&, const Ins*);

}  // namespace simgpu::ptx
