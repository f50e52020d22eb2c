// Sets the options of the program's sockets (gpuckpt/socket_options.h).
#pragma once

#include <string>

#include "restore/preflight/image.h"

namespace gpuckpt::restore {

enum class OptionMoment {
  kBeforeBind,
  kAtLast,  // all that are left, those that are set too early included
};
// What cannot be set is left as it is: option_differences tells.
void apply_options(int fd, const Image::Socket&, OptionMoment);
// Names of the options that are not what they were, "SO_MARK, SO_DEBUG"; empty: none.
std::string option_differences(int fd, const Image::Socket&);
// Joins the multicast groups. False: errno tells why one cannot be joined.
bool join_groups(int fd, const Image::Socket&);

// The value of an option as it was read; `otherwise`: it was not.
int option_value(const Image::Socket&, int level, int name, int otherwise);

}  // namespace gpuckpt::restore
