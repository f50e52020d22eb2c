#include "verb.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/format/sizes.h"

namespace gpuckpt::cli {

void complain(const std::string& text) { print(stderr, "gpuckpt: {}\n", text); }

std::string printable(const std::string& text, size_t longest) {
  std::string out = store::printable(text);
  if (out.size() <= longest) return out;
  size_t end = longest - 3;
  while (end && (out[end] & 0xc0) == 0x80) --end;  // not within a character
  return out.substr(0, end) + "...";
}

void print_text(FILE* to, const std::string& text) {
  const std::string plain = store::printable(text, "\n\t");
  fwrite(plain.data(), 1, plain.size(), to);
}

void print_json(const nlohmann::json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string line = store::printable_json(text) + "\n";
  fwrite(line.data(), 1, line.size(), stdout);
}

void Context::run(const std::function<Status()>& body) {
  Status status;
  try {
    status = body();
  } catch (const nlohmann::json::exception& e) {
    status = Status::Corruption(
        fmt::format("what was read has not the form that gpuckpt writes ({}): `gpuckpt verify` "
                    "looks at all of a store",
                    e.what()));
  }
  if (!status.ok()) {
    if (!status.text().empty()) complain(status.text());
    exit_code = status.code();
  }
  if (fflush(stdout) != 0 && exit_code == kExitOk) exit_code = kExitError;
}

bool parse_duration(const std::string& text, uint64_t* ms) {
  if (text.empty() || !(text[0] >= '0' && text[0] <= '9')) return false;
  char* end = nullptr;
  double value = strtod(text.c_str(), &end);
  std::string unit = end;
  double factor = unit == "ms"                  ? 1
                  : unit == "s" || unit.empty() ? 1e3
                  : unit == "m"                 ? 6e4
                  : unit == "h"                 ? 3.6e6
                                                : 0;
  if (factor == 0 || value * factor > 1e15) return false;
  *ms = static_cast<uint64_t>(value * factor + 0.5);
  return true;
}

std::string show_duration_us(uint64_t us) {
  if (us < 1000) return fmt::format("{} us", us);
  if (us < 1'000'000) return fmt::format("{:.1f} ms", static_cast<double>(us) / 1e3);
  return fmt::format("{:.2f} s", static_cast<double>(us) / 1e6);
}

std::string exit_codes(std::initializer_list<int> codes) {
  static const std::map<int, const char*> meaning = {
      {kExitOk, "ok"},
      {kExitError, "error"},
      {kExitUsage, "wrong usage"},
      {kExitWarnings, "done, with warnings"},
      {kExitAbsent, "store, snapshot or process absent"},
      {kExitLocked, "locked by another"},
      {kExitIncompatible, "this machine or gpuckpt cannot hold it"},
      {kExitCorrupt, "data is damaged"},
      {kExitRefused, "refused: it could not be restored, or is not yours"},
      {kExitTimeout, "timed out"},
      {kExitLauncher, "gpuckpt itself failed (the class is in --status-file)"},
      {kExitInterrupted, "interrupted"},
      {kExitTerminated, "terminated"},
  };
  std::string out = "Exit codes:";
  for (int code : codes) out += fmt::format("\n  {:<4} {}", code, meaning.at(code));
  return out;
}

Option add_json(Verb verb, Context* context) {
  return verb.flag("--json", context->json, "Result as JSON on stdout");
}

Option add_store(Verb verb, std::string* store) {
  *store = "gpuckpt.store";
  return verb.option("STORE", *store, "Directory of the store").env("GPUCKPT_STORE").show_default();
}

Option add_sim(Verb verb, std::string* sim, const std::string& help) {
  return verb.flag("--sim", *sim, "1", help)
      .env("GPUCKPT_SIM")
      .check("", [](const std::string& text) {
        return text == "1" || text == "torch" || text == "0"
                   ? ""
                   : fmt::format("\"{}\" is neither 1, torch nor 0", text);
      });
}

bool simulated(const std::string& sim) { return !sim.empty() && sim != "0"; }

bool any_owner() {
  const char* text = getenv("GPUCKPT_ANY_OWNER");
  return text && *text && *text != '0';
}

}  // namespace gpuckpt::cli
