// gpuckpt inspect: shows what is in a snapshot.

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gpuckpt/wire.h"
#include "image/image_memory.h"
#include "image/members.h"
#include "image/process_records.h"
#include "image/python_frames.h"
#include "image/socket_text.h"
#include "image/spaces.h"
#include "image/stacks.h"
#include "store/format/member.h"
#include "store/format/sizes.h"
#include "store/io/json_text.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string reference;
  bool threads = false, maps = false, fds = false, allocations = false;
};

std::string fd_kind(uint32_t kind) {
  static const char* names[] = {
      "?",       "file",     "directory",   "pipe",      "eventfd", "epoll",
      "timerfd", "signalfd", "device",      "inherited", "memory",  "socket",
      "socket",  "fifo",     "pidfd",       "terminal",  "inotify", "pty master",
      "?",       "path",     "kernel file", "pidfd",     "pidfd",   "message queue"};
  return kind < std::size(names) ? names[kind] : "?";
}

std::string protection(uint32_t prot, uint32_t kind) {
  bool shared = kind == process::kVmaShared || kind == process::kVmaFileShared;
  return fmt::format("{}{}{}{}", prot & PROT_READ ? 'r' : '-', prot & PROT_WRITE ? 'w' : '-',
                     prot & PROT_EXEC ? 'x' : '-', shared ? 's' : 'p');
}

// The bytes of `extents` (sorted) in [start, end): data and zero.
std::pair<uint64_t, uint64_t> covered(const std::vector<store::Extent>& extents, uint64_t start,
                                      uint64_t end) {
  uint64_t data = 0, zero = 0;
  auto it =
      std::upper_bound(extents.begin(), extents.end(), start,
                       [](uint64_t a, const store::Extent& e) { return a < e.address + e.length; });
  for (; it != extents.end() && it->address < end; ++it) {
    uint64_t n = std::min(end, it->address + it->length) - std::max(start, it->address);
    (it->zero ? zero : data) += n;
  }
  return {data, zero};
}

// The threads with their stacks: native frames as a debugger prints them, and Python frames apart.
json threads_of(const std::vector<Record>& records, const store::SnapshotReader& reader) {
  json out = json::array();
  ImageMemory memory(reader, records);
  ElfSymbols symbols;
  PythonFrames python(memory, &symbols);
  if (!can_unwind()) complain("this gpuckpt was built without libunwind: no stacks");
  if (!python.unknown_version().empty())
    complain(fmt::format("frames of Python {} cannot be read (3.11 to 3.13 can)",
                         python.unknown_version()));
  for (const Record& record : records) {
    process::Thread t;
    if (record.type != process::kRecThread || !record.get(&t)) continue;
    t.name[sizeof(t.name) - 1] = 0;
    json stack = json::array(), python_stack = json::array();
    for (const StackFrame& f : stack_of(t, memory, &symbols))
      stack.push_back(
          {{"pc", fmt::format("{:#x}", f.pc)}, {"function", f.function}, {"module", f.module}});
    for (const PythonFrame& f : python.of_thread(t.tid))
      python_stack.push_back({{"function", f.function}, {"file", f.file}, {"line", f.line}});
    out.push_back({{"tid", t.tid},
                   {"name", t.name},
                   {"main", (t.flags & process::kThreadMain) != 0},
                   {"driver", (t.flags & process::kThreadDriver) != 0},
                   {"fs", fmt::format("{:#x}", t.fs)},
                   {"nice", t.nice},
                   {"policy", t.policy},
                   {"stack", stack},
                   {"python", python_stack}});
  }
  return out;
}

json maps_of(const std::vector<Record>& records, const store::SnapshotReader& reader) {
  json out = json::array();
  auto extents = reader.extents(wire::kSpaceHost);
  for (const Record& record : records) {
    process::Vma v;
    if (record.type != process::kRecVma || !record.get(&v)) continue;
    auto [data, zero] = covered(extents, v.start, v.end);
    out.push_back({{"start", fmt::format("{:#x}", v.start)},
                   {"end", fmt::format("{:#x}", v.end)},
                   {"size", v.end - v.start},
                   {"protection", protection(v.prot, v.kind)},
                   {"placeholder", v.kind == process::kVmaPlaceholder},
                   {"stored", data},
                   {"zero", zero},
                   {"path", record.text(sizeof(v))}});
  }
  return out;
}

json fds_of(const std::vector<Record>& records) {
  json out = json::array();
  std::map<int, std::string> sockets;
  for (const Record& record : records) {
    process::Socket s;
    if (record.type == process::kRecSocket && record.get(&s))
      sockets[static_cast<int>(s.index)] = socket_text(s);
  }
  for (const Record& record : records) {
    process::Descriptor d;
    if (record.type != process::kRecFd || !record.get(&d)) continue;
    out.push_back(
        {{"fd", d.fd},
         {"kind", fd_kind(d.kind)},
         {"offset", d.offset},
         {"size", d.size},
         {"access", (d.flags & O_ACCMODE) == O_RDONLY   ? "r"
                    : (d.flags & O_ACCMODE) == O_WRONLY ? "w"
                                                        : "rw"},
         {"cloexec", d.fd_flags != 0},
         {"path", d.kind == process::kFdSocket ? sockets[d.object] : record.text(sizeof(d))}});
  }
  return out;
}

// What the snapshot shows without the device side's description: the captured ranges of device
// memory.
json allocations_of(const store::SnapshotReader& reader) {
  json out = json::array();
  for (uint64_t space : reader.spaces()) {
    const uint64_t plain = space & wire::kPlainSpace;
    if (plain < wire::kSpaceDeviceBase) continue;
    uint64_t start = 0, end = 0, zero = 0;
    auto flush = [&] {
      if (end > start) {
        out.push_back({{"process", space >> wire::kMemberShift},
                       {"device", plain - wire::kSpaceDeviceBase},
                       {"address", fmt::format("{:#x}", start)},
                       {"size", end - start},
                       {"zero", zero}});
      }
    };
    for (const store::Extent& e : reader.extents(space)) {
      if (e.address != end) {
        flush();
        start = e.address;
        zero = 0;
      }
      end = e.address + e.length;
      zero += e.zero ? e.length : 0;
    }
    flush();
  }
  return out;
}

// A value of a snapshot's description on one line.
std::string plain_text(const json& value) {
  return store::printable(value.is_string()
                              ? value.get<std::string>()
                              : value.dump(-1, ' ', true, json::error_handler_t::replace));
}

void print_table(const json& rows, std::initializer_list<std::pair<const char*, int>> columns) {
  for (const auto& [name, width] : columns) print("{:<{}} ", name, width);
  print("\n");
  for (const json& row : rows) {
    for (const auto& [name, width] : columns) {
      print("{:<{}} ", plain_text(row[name]), width);
    }
    print("\n");
  }
}

void print_threads(const json& threads) {
  for (const json& t : threads) {
    print("thread {} \"{}\"{}{}\n", t["tid"].get<int>(), plain_text(t["name"]),
          t["main"].get<bool>() ? " (main)" : "", t["driver"].get<bool>() ? " (driver)" : "");
    int number = 0;
    for (const json& f : t["stack"]) {
      std::string function = f["function"], module = f["module"];
      print("  #{:<3} {:>18} {} in {}\n", number++, f["pc"].get<std::string>(),
            function.empty() ? "?" : store::printable(function),
            module.empty() ? "?" : store::printable(module));
    }
    for (const json& f : t["python"])
      print("  py   {} ({}:{})\n", plain_text(f["function"]), plain_text(f["file"]),
            f["line"].get<int>());
  }
}

void print_detail(const json& detail) {
  if (detail.contains("threads")) print_threads(detail["threads"]);
  if (detail.contains("maps")) {
    print_table(detail["maps"], {{"start", 15},
                                 {"end", 15},
                                 {"protection", 10},
                                 {"size", 13},
                                 {"stored", 12},
                                 {"zero", 12},
                                 {"path", 1}});
  }
  if (detail.contains("fds"))
    print_table(detail["fds"],
                {{"fd", 5}, {"kind", 10}, {"access", 6}, {"offset", 12}, {"path", 1}});
}

// The parts of one process that the options ask for. `reader`: that process's part of the snapshot.
Status detail_of(const store::SnapshotReader& reader, const Options& options, json* out) {
  std::vector<uint8_t> blob;
  std::vector<Record> records;
  if (Status s = reader.blob("process", &blob); !s.ok()) return s;
  if (Status s = parse_records(blob, &records); !s.ok()) return s;
  if (options.threads) (*out)["threads"] = threads_of(records, reader);
  if (options.maps) (*out)["maps"] = maps_of(records, reader);
  if (options.fds) (*out)["fds"] = fds_of(records);
  return Status::Ok();
}

// The description of that process of the job: the first process is at the top, the others are in
// "members".
json* description_of(json* meta, uint32_t number) {
  if (!number) return meta;
  json& members = (*meta)["members"];
  if (!members.is_array()) members = json::array();
  for (json& m : members)
    if (m.is_object() && m.value("number", json()) == number) return &m;
  members.push_back({{"number", number}});
  return &members.back();
}

std::string title_of(const json& process) {
  auto text = [&](const char* key) { return plain_text(process.value(key, json())); };
  return fmt::format("{}: {}", text("pid"), text("command"));
}

// Prints a figure by its key, whose ending says what it counts: "early_us" is a time called
// "early", or "early time" beside other figures of that name.
void print_figure(const json& group, const std::string& key, const json& value) {
  const bool bytes = key.ends_with("_bytes") && value.is_number_unsigned();
  const bool time = key.ends_with("_us") && value.is_number_unsigned();
  std::string label = key;
  if (bytes || time) {
    label.resize(key.rfind('_'));
    const bool alone =
        !group.contains(label) && !group.contains(label + (bytes ? "_us" : "_bytes"));
    if (!alone) label += bytes ? " bytes" : " time";
  }
  std::replace(label.begin(), label.end(), '_', ' ');
  print("{:<20} {}\n", store::printable(label),
        bytes  ? store::show_size(value)
        : time ? show_duration_us(value)
               : plain_text(value));
}

void print_summary(const json& meta, const json& spaces) {
  static const char* first[] = {"id",  "time", "job",        "tag",  "command", "exe",
                                "cwd", "pid",  "generation", "host", "kernel"};
  for (const char* key : first)
    if (meta.contains(key)) print("{:<20} {}\n", key, plain_text(meta[key]));
  for (const char* group : {"sizes", "stats"}) {
    if (!meta.contains(group) || !meta[group].is_object()) continue;
    for (const auto& [key, value] : meta[group].items()) print_figure(meta[group], key, value);
  }
  for (const json* m : members_in(meta))
    print("{:<20} {}\n", fmt::format("process {}", store::json_number(*m, "number")), title_of(*m));
  for (const json& space : spaces) {
    print("{:<20} {} stored, {} zero\n", space["name"].get<std::string>(),
          store::show_size(space["stored"]), store::show_size(space["zero"]));
  }
}

Status inspect(const Options& options, Context* context) {
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::SnapshotReader> reader;
  Status status =
      store::open_reference(options.reference, {.any_owner = any_owner()}, &store, &reader);
  if (!status.ok()) return status;
  json meta = store::parse_json(reader->meta());
  if (!meta.is_object()) return Status::Corruption("the snapshot's description is not JSON");
  json spaces = json::array();
  for (uint64_t space : reader->spaces()) {
    uint64_t data = 0, zero = 0;
    for (const store::Extent& e : reader->extents(space)) (e.zero ? zero : data) += e.length;
    spaces.push_back(
        {{"space", space}, {"name", space_name(space)}, {"stored", data}, {"zero", zero}});
  }
  const bool details = options.threads || options.maps || options.fds;
  const std::vector<uint32_t> numbers = store::members_of(*reader);
  for (uint32_t number : details ? numbers : std::vector<uint32_t>{}) {
    json& process = *description_of(&meta, number);
    json detail = json::object();
    if (status = detail_of(*store::read_member(*reader, number), options, &detail); !status.ok())
      return status;
    if (!context->json && numbers.size() > 1)
      print("{}process {}\n", number ? "\n" : "", title_of(process));
    if (context->json)
      process.update(detail);
    else
      print_detail(detail);
  }
  json allocations = options.allocations ? allocations_of(*reader) : json();
  if (context->json) {
    meta["spaces"] = spaces;
    if (options.allocations) meta["allocations"] = allocations;
    print_json(meta);
    return Status::Ok();
  }
  if (!details && !options.allocations) print_summary(meta, spaces);
  if (options.allocations)
    print_table(allocations,
                {{"process", 7}, {"device", 7}, {"address", 18}, {"size", 14}, {"zero", 14}});
  return Status::Ok();
}

}  // namespace

void define_inspect(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("inspect", "Show what a snapshot holds");
  verb.option("STORE[@ID]", options->reference,
              "The snapshot: STORE@ID, STORE@TAG, or STORE for the newest")
      .required();
  verb.flag("--threads", options->threads,
            "Its threads, each with its call stack (and its Python frames)");
  verb.flag("--maps", options->maps, "Its memory mappings, and what of each is stored");
  verb.flag("--fds", options->fds, "Its descriptors");
  verb.flag("--allocations", options->allocations, "Its device memory");
  add_json(verb, context);
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitIncompatible,
                          kExitCorrupt, kExitRefused}));
  verb.callback([options, context] { context->run([&] { return inspect(*options, context); }); });
}

}  // namespace gpuckpt::cli
