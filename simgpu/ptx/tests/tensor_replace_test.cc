// Tensor maps that kernels make and change themselves.
#include <string>
#include <vector>
#include "tests/catch.h"

#include "ptx/tensor_map.h"
#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

constexpr unsigned kWidth = 24, kHeight = 20, kBoxWidth = 8, kBoxHeight = 4;

// One warp makes a map in shared memory with `changes` ([map]: its address, %rows: the tensor's
// address), copies it to global memory, and with it a box from column 4 and row 2 on to `out`.
std::string text(const std::string& changes, const std::string& version = "8.7") {
  return ".version " + version + R"(
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 prows, .param .u64 pmap, .param .u64 pout, .param .u64 pstart) {
.reg .b32 %n, %t, %i, %w; .reg .b64 %rows, %map, %out, %from, %token, %x; .reg .pred %p, %q;
.shared .align 128 .b8 map[128]; .shared .align 1024 .b8 box[128]; .shared .align 8 .b64 bar;
mov.u32 %t, %tid.x; ld.param.u64 %rows, [prows]; ld.param.u64 %map, [pmap]; ld.param.u64 %out, [pout];
// What the map begins as.
ld.param.u64 %from, [pstart]; mad.wide.u32 %from, %t, 4, %from; ld.global.u32 %w, [%from];
mov.u32 %i, map; mad.lo.u32 %i, %t, 4, %i; st.shared.u32 [%i], %w; bar.warp.sync -1;
setp.ne.u32 %p, %t, 0; @%p bra made;
)" + changes +
         R"(
mov.u32 %n, 1; mbarrier.init.shared::cta.b64 [bar], %n;
made: bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%map], [map], 128;
@%p bra wait;
mov.u32 %n, 128; mbarrier.arrive.expect_tx.shared::cta.b64 %token, [bar], %n;
fence.proxy.tensormap::generic.acquire.gpu [%map], 128;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [box], [%map, {4, 2}], [bar];
wait: mov.u32 %n, 0;
again: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], %n; @!%q bra again;
mov.u32 %i, box; mad.lo.u32 %i, %t, 4, %i; ld.shared.u32 %w, [%i];
mad.wide.u32 %x, %t, 4, %out; st.global.u32 [%x], %w; ret; })";
}

const std::string kFields = R"(
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [map], %rows;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [map], 1;
mov.u32 %n, 8; tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 0, %n;
mov.u32 %n, 4; tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 1, %n;
mov.u32 %n, 24; tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [map], 0, %n;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [map], 1, 20;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [map], 0, 1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [map], 1, 1;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [map], 7;
tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [map], 0;
tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [map], 0;
)";
const std::string kStride =
    "mov.u64 %x, 96; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [map], 0, %x;\n";

struct Loaded {
  std::string error;
  std::vector<float> box;
  TensorMap map;
};
Loaded load(const std::string& program,
            const std::vector<uint32_t>& start = std::vector<uint32_t>(32)) {
  Gpu gpu(1 << 20);
  if (!gpu.load(program)) return {gpu.error, {}, {}};
  std::vector<float> rows(kWidth * kHeight);
  for (size_t k = 0; k < rows.size(); ++k) rows[k] = (float)k;
  const uint64_t map = gpu.zeros(128), out = gpu.zeros(128);
  const Result r = gpu.run("k", 1, 32, {gpu.array(rows), map, out, gpu.array(start)});
  return {r.text, gpu.read<float>(out, 32), gpu.read<TensorMap>(map, 1)[0]};
}
float want(unsigned x, unsigned y) { return (float)((y + 2) * kWidth + x + 4); }

void check_plain(const Loaded& got) {
  REQUIRE(got.error == "");
  for (unsigned y = 0; y < kBoxHeight; ++y)
    for (unsigned x = 0; x < kBoxWidth; ++x) CHECK(got.box[y * kBoxWidth + x] == want(x, y));
}

}  // namespace

TEST_CASE("a kernel makes a tensor map from zeros, or from what lay there", "[tensor]") {
  check_plain(load(text(kFields + kStride)));
  check_plain(load(text(kFields + kStride), std::vector<uint32_t>(32, 0xa5a5a5a5)));
}

TEST_CASE("a kernel changes one field of a map and keeps the others", "[tensor]") {
  TensorMap m{};
  m.magic = TensorMap::kMagic;
  m.type = 7;
  m.element_bytes = 4;
  m.dimensions = 2;
  m.address = 0x1000;  // not to be read
  m.strides[0] = kWidth * 4;
  m.last[0] = kWidth - 1;
  m.last[1] = kHeight - 1;
  m.box[0] = kBoxWidth;
  m.box[1] = kBoxHeight;
  m.step[0] = m.step[1] = 1;
  std::vector<uint32_t> start(32);
  memcpy(start.data(), &m, sizeof m);
  const Loaded got = load(
      text("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [map], %rows;\n"), start);
  check_plain(got);
  CHECK(got.map.address != m.address);
  TensorMap kept = got.map;
  kept.address = m.address;
  CHECK(memcmp(&kept, &m, sizeof m) == 0);
}

TEST_CASE("compilers before CUDA 12.5 count strides in pieces of 16 bytes", "[tensor]") {
  const std::string pieces =
      "mov.u64 %x, 6; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [map], 0, %x;\n";
  check_plain(load(text(kFields + pieces, "8.4")));
}

TEST_CASE("swizzles of a map that a kernel made are those of the driver's", "[tensor]") {
  const std::string swizzle = "tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [map], ";
  const std::string atoms =
      "tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [map], ";
  CHECK(load(text(kFields + kStride + swizzle + "1;\n")).map.swizzle == TensorMap::k32);
  CHECK(load(text(kFields + kStride + swizzle + "3;\n")).map.swizzle == TensorMap::k128);
  for (const std::string& both :
       {swizzle + "3;\n" + atoms + "1;\n", atoms + "1;\n" + swizzle + "3;\n"})
    CHECK(load(text(kFields + kStride + both)).map.swizzle == TensorMap::k128Atom32);
  // Rows of 32 bytes: the second 128 bytes would be the first that differ, so the box is the same.
  check_plain(load(text(kFields + kStride + swizzle + "1;\n")));
}

TEST_CASE("values that no map can have here are refused by name", "[tensor]") {
  auto error = [](const std::string& line) { return load(text(line)).error; };
  const std::string begin = "tensormap.replace.tile.", end = ".shared::cta.b1024.b32 [map], ";
  CHECK(error(begin + "elemtype" + end + "13;\n").find("'elemtype' 13") != std::string::npos);
  CHECK(error(begin + "interleave_layout" + end + "2;\n").find("'interleave_layout' 2") !=
        std::string::npos);
  CHECK(error(begin + "swizzle_mode" + end + "4;\n").find("'swizzle_mode' 4") != std::string::npos);
  CHECK(error(begin + "box_dim" + end + "5, 1;\n").find("bad dimension") != std::string::npos);
  CHECK(error(begin + "global_address" + end + "0;\n").find("does not fit") != std::string::npos);
  CHECK(error(begin + "colour" + end + "0;\n").find("unknown modifier") != std::string::npos);
}

TEST_CASE("a map without an element stride copies nothing", "[tensor]") {
  const std::string without =
      "tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [map], 1, 0;\n";
  CHECK(load(text(kFields + kStride + without)).error.find("element stride of 0") !=
        std::string::npos);
}
