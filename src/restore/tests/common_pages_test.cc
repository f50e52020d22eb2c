// Which pages of several processes are found to be in common, and which process gets which.
#include "restore/memory/common_pages.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>

#include "gpuckpt/wire.h"
#include "restore/image/tree.h"
#include "tests/catch.h"

namespace gpuckpt::restore {
namespace {

using namespace process;
using store::NamedExtent;
using store::Status;

constexpr uint64_t kPage = 4096, kMiB = 1 << 20, kBase = 0x10000000;
constexpr uint64_t kPagesOfMiB = kMiB / kPage;

// Pages of one process: address -> a number for their contents; 0: zeros.
using Pages = std::map<uint64_t, int>;

class FakeReader : public store::SnapshotReader {
 public:
  explicit FakeReader(Pages pages) : pages_(std::move(pages)) {}
  const std::string& id() const override { return text_; }
  const std::string& meta() const override { return text_; }
  std::vector<uint64_t> spaces() const override { return {wire::kSpaceHost}; }
  std::vector<store::Extent> extents(uint64_t) const override { return {}; }
  std::vector<NamedExtent> named_extents(uint64_t) const override {
    std::vector<NamedExtent> out;
    for (const auto& [address, contents] : pages_) {
      NamedExtent e{address, kPage, contents == 0, {}};
      memcpy(e.name.data(), &contents, sizeof(contents));
      out.push_back(e);
    }
    return out;
  }
  const store::Names& names() const override { abort(); }
  std::vector<std::string> blobs() const override { return {}; }
  Status blob(const std::string&, std::vector<uint8_t>*) const override { return Status::Ok(); }
  Status read(uint64_t, uint64_t, std::span<uint8_t>) const override { return Status::Ok(); }
  Status read_all(uint64_t, unsigned, const Sink&, const Place&) const override {
    return Status::Ok();
  }
  Status read_parts(uint64_t, const std::vector<Range>&, unsigned, const Sink&,
                    const Place&) const override {
    return Status::Ok();
  }

 private:
  const std::string text_;
  const Pages pages_;
};

// From page `first` on, counted from kBase.
void put(Pages* to, uint64_t first, uint64_t count, int contents) {
  for (uint64_t i = 0; i < count; ++i)
    (*to)[kBase + (first + i) * kPage] = contents ? contents + static_cast<int>(first + i) : 0;
}

AddressRange range(uint64_t first, uint64_t end) {
  return {kBase + first * kPage, kBase + end * kPage};
}

struct Mapping {
  uint64_t first, end;  // pages
  uint32_t flags = 0;
  uint32_t kind = kVmaAnonymous;
};

void add(Tree* tree, Pages pages, const std::vector<Mapping>& mappings) {
  auto m = std::make_unique<Member>();
  m->reader = std::make_unique<FakeReader>(std::move(pages));
  for (const Mapping& x : mappings) {
    Vma v{};
    v.start = range(x.first, x.end).start, v.end = range(x.first, x.end).end;
    v.kind = x.kind, v.flags = x.flags, v.prot = 3;
    m->image.vmas.emplace_back(v, "");
  }
  tree->members.push_back(std::move(m));
}

bool same(const std::vector<AddressRange>& a, const std::vector<AddressRange>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.start == y.start && x.end == y.end;
  });
}

constexpr uint64_t k4 = 4 * kPagesOfMiB;
constexpr int kParents = 1000000, kOther = 2000000, kThird = 3000000;

}  // namespace

TEST_CASE("what a child wrote is its own, the rest is read once") {
  Tree tree;
  Pages parent, child;
  put(&parent, 0, k4, kParents);
  put(&child, 0, k4, kParents);
  put(&child, 10, 5, kOther);
  add(&tree, parent, {{0, k4}});
  add(&tree, child, {{0, k4}});
  const CommonPages c = find_common_pages(tree);
  REQUIRE(c.regions.size() == 1);
  REQUIRE(same({c.regions[0].range}, {range(0, k4)}));
  // (What only the parent has there is not common: the child's differs.)
  for (const CommonOfMember& m : c.members) {
    REQUIRE(same(m.inherited, {range(0, k4)}));
    REQUIRE(same(m.equal, {range(0, 10), range(15, k4)}));
    REQUIRE(m.foreign.empty());
  }
  REQUIRE(same(c.members[0].source, {range(0, 10), range(15, k4)}));
  REQUIRE(c.members[1].source.empty());
  REQUIRE(c.saved() == (k4 - 5) * kPage);
}

TEST_CASE("pages that the parent wrote after fork are in common among the children") {
  Tree tree;
  Pages parent, child;
  put(&parent, 0, k4, kOther);
  put(&child, 0, k4, kParents);
  add(&tree, parent, {{0, k4}});
  for (int i = 0; i < 3; ++i) add(&tree, child, {{0, k4}});
  const CommonPages c = find_common_pages(tree);
  REQUIRE(c.regions.size() == 1);
  REQUIRE(c.members[0].inherited.empty());
  REQUIRE(same(c.members[1].source, {range(0, k4)}));
  for (size_t i = 1; i < 4; ++i) REQUIRE(same(c.members[i].equal, {range(0, k4)}));
}

TEST_CASE("what a process gave up or has as zeros is taken out of what it inherits") {
  Tree tree;
  Pages parent, child;
  put(&parent, 0, k4, kParents);
  put(&child, 0, k4, kParents);
  for (uint64_t p = 100; p < 200; ++p) child.erase(kBase + p * kPage);  // discarded
  put(&child, 300, 50, 0);
  add(&tree, parent, {{0, k4}});
  add(&tree, parent, {{0, k4}});
  add(&tree, child, {{0, 600}, {700, k4}});  // and a hole
  for (uint64_t p = 600; p < 700; ++p) child.erase(kBase + p * kPage);
  const CommonPages c = find_common_pages(tree);
  REQUIRE(same(c.members[2].inherited, {range(0, 600), range(700, k4)}));
  REQUIRE(
      same(c.members[2].equal, {range(0, 100), range(200, 300), range(350, 600), range(700, k4)}));
  REQUIRE(same(c.members[2].foreign, {range(100, 200), range(300, 350)}));
}

TEST_CASE("other mappings at the same place are not inherited") {
  const uint32_t flags = GENERATE(kVmaDontFork, kVmaWipeOnFork, kVmaHugePage, kVmaNoReserve,
                                  kVmaDroppable, kVmaHugetlb, kVmaGrowsDown);
  Tree tree;
  Pages pages;
  put(&pages, 0, k4, kParents);
  add(&tree, pages, {{0, k4, flags}});
  add(&tree, pages, {{0, k4}});
  add(&tree, pages, {{0, k4}});
  add(&tree, pages, {{0, k4, 0, kVmaShared}});
  add(&tree, pages, {{0, k4, 0, kVmaFile}});
  const CommonPages c = find_common_pages(tree);
  REQUIRE(c.regions.size() == 1);
  REQUIRE(c.regions[0].flags == 0);
  for (size_t i : {1, 2}) REQUIRE(same(c.members[i].equal, {range(0, k4)}));
  REQUIRE(same(c.members[1].source, {range(0, k4)}));
  for (size_t i : {0, 3, 4}) REQUIRE(c.members[i].inherited.empty());
}

TEST_CASE("what is in a process that inherits is always read of one that inherits") {
  // B's mapping overlaps regions of two kinds and lies in neither; C has the same pages.
  Tree tree;
  Pages a, b, c_pages, d;
  put(&a, 0, k4, kParents);
  put(&b, k4 / 2, k4, kOther);
  put(&c_pages, k4, k4 / 2, kOther);
  put(&d, k4, k4 / 2, kOther);
  add(&tree, a, {{0, k4}});
  add(&tree, a, {{0, k4}});
  add(&tree, b, {{k4 / 2, k4 + k4 / 2, kVmaNoReserve}});
  add(&tree, c_pages, {{k4, k4 + k4 / 2, kVmaNoReserve}});
  add(&tree, d, {{k4, k4 + k4 / 2, kVmaNoReserve}});
  const CommonPages c = find_common_pages(tree);
  std::vector<uint8_t> there(2 * k4);
  for (const CommonOfMember& m : c.members)
    for (const AddressRange& r : m.source)
      for (uint64_t at = r.start; at < r.end; at += kPage) ++there[(at - kBase) / kPage];
  for (const CommonOfMember& m : c.members)
    for (const AddressRange& r : m.equal)
      for (uint64_t at = r.start; at < r.end; at += kPage)
        REQUIRE(there[(at - kBase) / kPage] == 1);
  REQUIRE(same(c.members[0].equal, {range(0, k4)}));
}

TEST_CASE("little in common, nothing in common, one process: each by itself") {
  Tree little, nothing, one;
  Pages pages, other;
  put(&pages, 0, kPagesOfMiB - 1, kParents);
  put(&other, 0, kPagesOfMiB - 1, kThird);
  add(&little, pages, {{0, k4}});
  add(&little, pages, {{0, k4}});
  add(&nothing, pages, {{0, k4}});
  add(&nothing, other, {{0, k4}});
  add(&one, pages, {{0, k4}});
  for (const Tree* tree : {&little, &nothing, &one}) {
    const CommonPages c = find_common_pages(*tree);
    REQUIRE(c.regions.empty());
    REQUIRE(c.members.empty());
    REQUIRE(c.saved() == 0);
  }
}

TEST_CASE("a range without others") {
  REQUIRE(same(without({{0, 100}}, {}), {{0, 100}}));
  REQUIRE(same(without({{0, 100}}, {{10, 20}, {50, 200}}), {{0, 10}, {20, 50}}));
  REQUIRE(same(without({{0, 10}, {20, 30}}, {{5, 25}}), {{0, 5}, {25, 30}}));
  REQUIRE(same(without({{0, 10}, {10, 30}}, {{0, 10}}), {{10, 30}}));
  REQUIRE(without({{5, 10}}, {{0, 20}}).empty());
}

}  // namespace gpuckpt::restore
