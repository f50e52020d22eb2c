// Errors of the ordinary C++ side (store, writer, command line, supervisor) are values: a class
// that becomes the exit code, and one sentence that says what happened, where, and what to do.
//
// Owner: none, they are values. Threads: any. Errors: it is one.
#pragma once

#include <string>
#include <utility>

#include "gpuckpt/exit_codes.h"

namespace gpuckpt::store {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ExitCode code, std::string text) : code_(code), text_(std::move(text)) {}

  static Status Ok() { return {}; }
  static Status Error(std::string text) { return {kExitError, std::move(text)}; }
  static Status NotFound(std::string text) { return {kExitAbsent, std::move(text)}; }
  static Status Locked(std::string text) { return {kExitLocked, std::move(text)}; }
  static Status Incompatible(std::string text) { return {kExitIncompatible, std::move(text)}; }
  static Status Corruption(std::string text) { return {kExitCorrupt, std::move(text)}; }
  static Status Refused(std::string text) { return {kExitRefused, std::move(text)}; }

  bool ok() const { return code_ == kExitOk; }
  ExitCode code() const { return code_; }
  const std::string& text() const { return text_; }
  // The same failure seen from one level up: "restore: chunk 17 ...".
  Status in(const std::string& where) const {
    return ok() ? *this : Status(code_, where + ": " + text_);
  }

 private:
  ExitCode code_ = kExitOk;
  std::string text_;
};

}  // namespace gpuckpt::store
