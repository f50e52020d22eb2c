#include "stores/snapshot_tree.h"

#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/json_text.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Node {
  const store::SnapshotInfo* info = nullptr;
  std::string job, run, parent, time, tag;
  std::vector<size_t> children;  // oldest first
};

std::string text(const nlohmann::json& j, const char* key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

Node node_of(const store::SnapshotInfo& info) {
  Node node;
  node.info = &info;
  auto j = store::parse_json(info.meta);
  if (!j.is_object()) return node;
  node.job = text(j, "job");
  node.run = text(j, "run");
  node.parent = text(j, "parent");
  node.time = text(j, "time");
  node.tag = text(j, "tag");
  return node;
}

std::string line_of(const Node& node, size_t depth, bool newest) {
  std::string line = fmt::format("{}{}  {}  run {}", std::string(2 * depth, ' '), node.info->id,
                                 node.info->status.ok() ? node.time : "damaged",
                                 node.run.empty() ? "?" : printable(node.run, 20));
  if (!node.tag.empty()) line += "  tag " + printable(node.tag, 20);
  if (node.info->branch) line += "  branch: its run had lost the job";
  if (newest) line += "  latest";
  return line;
}

}  // namespace

std::vector<std::string> snapshot_tree(const std::vector<store::SnapshotInfo>& snapshots,
                                       const std::string& job) {
  std::vector<Node> nodes;
  std::map<std::string, size_t> by_id;
  std::map<std::string, std::vector<size_t>> roots;  // by job
  std::map<std::string, std::string> newest;         // of the line, by job
  for (const store::SnapshotInfo& info : snapshots) {
    Node node = node_of(info);
    if (!job.empty() && node.job != job) continue;
    auto parent = by_id.find(node.parent);
    // (A parent that was pruned, or is in another store, does not count.)
    if (parent != by_id.end() && nodes[parent->second].job == node.job)
      nodes[parent->second].children.push_back(nodes.size());
    else
      roots[node.job].push_back(nodes.size());
    if (!info.branch) newest[node.job] = info.id;
    by_id[info.id] = nodes.size();
    nodes.push_back(std::move(node));
  }
  std::vector<std::string> out;
  for (const auto& [name, first] : roots) {
    out.push_back(name.empty() ? "(no job)" : "job " + printable(name, 60));
    // The youngest child continues in its parent's column, after the branches that leave it.
    std::vector<std::pair<size_t, size_t>> open;  // node, depth; the next one at the end
    for (auto it = first.rbegin(); it != first.rend(); ++it) open.emplace_back(*it, 1);
    while (!open.empty()) {
      const auto [at, depth] = open.back();
      open.pop_back();
      out.push_back(line_of(nodes[at], depth, newest[name] == nodes[at].info->id));
      const std::vector<size_t>& children = nodes[at].children;
      size_t main = children.size();
      for (size_t i = 0; i < children.size(); ++i)
        if (main == children.size() || !nodes[children[i]].info->branch) main = i;
      if (main < children.size()) open.emplace_back(children[main], depth);
      for (size_t i = children.size(); i-- > 0;)
        if (i != main) open.emplace_back(children[i], depth + 1);
    }
  }
  return out;
}

}  // namespace gpuckpt::cli
