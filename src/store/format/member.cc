#include "store/format/member.h"

#include <algorithm>
#include <cstdlib>

namespace gpuckpt::store {
namespace {

constexpr char kProcess[] = "process";

class MemberReader : public SnapshotReader {
 public:
  MemberReader(const SnapshotReader& whole, uint32_t member) : whole_(whole), member_(member) {}

  const std::string& id() const override { return whole_.id(); }
  const std::string& meta() const override { return whole_.meta(); }

  std::vector<uint64_t> spaces() const override {
    std::vector<uint64_t> out;
    for (uint64_t space : whole_.spaces())
      if (space >> wire::kMemberShift == member_) out.push_back(space & wire::kPlainSpace);
    return out;
  }
  std::vector<Extent> extents(uint64_t space) const override {
    return whole_.extents(member_space(space, member_));
  }
  std::vector<NamedExtent> named_extents(uint64_t space) const override {
    return whole_.named_extents(member_space(space, member_));
  }
  const Names& names() const override { return whole_.names(); }
  std::vector<std::string> blobs() const override {
    std::vector<std::string> out;
    const std::string tail = member_blob("", member_);
    for (const std::string& name : whole_.blobs()) {
      if (!member_ ? name.find('.') == std::string::npos : name.ends_with(tail))
        out.push_back(name.substr(0, name.size() - tail.size()));
    }
    return out;
  }
  Status blob(const std::string& name, std::vector<uint8_t>* out) const override {
    return whole_.blob(member_blob(name, member_), out);
  }
  Status read(uint64_t space, uint64_t address, std::span<uint8_t> out) const override {
    return whole_.read(member_space(space, member_), address, out);
  }
  Status read_all(uint64_t space, unsigned threads, const Sink& sink,
                  const Place& place) const override {
    return whole_.read_all(member_space(space, member_), threads, sink, place);
  }
  Status read_parts(uint64_t space, const std::vector<Range>& ranges, unsigned threads,
                    const Sink& sink, const Place& place) const override {
    return whole_.read_parts(member_space(space, member_), ranges, threads, sink, place);
  }

 private:
  const SnapshotReader& whole_;
  const uint32_t member_;
};

}  // namespace

std::string member_blob(const std::string& plain, uint32_t member) {
  return member ? plain + "." + std::to_string(member) : plain;
}

std::vector<uint32_t> members_of(const SnapshotReader& snapshot) {
  std::vector<uint32_t> out;
  const std::string start = std::string(kProcess) + ".";
  for (const std::string& name : snapshot.blobs()) {
    if (name == kProcess) out.push_back(0);
    if (name.starts_with(start))
      out.push_back(static_cast<uint32_t>(strtoul(name.c_str() + start.size(), nullptr, 10)));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::unique_ptr<SnapshotReader> read_member(const SnapshotReader& snapshot, uint32_t member) {
  return std::make_unique<MemberReader>(snapshot, member);
}

}  // namespace gpuckpt::store
