// Connections that have ended, but whose port the kernel keeps for a while (TIME_WAIT, FIN_WAIT).
#pragma once

#include <cstdint>

namespace gpuckpt::restore {

// Ends those of a local TCP port, which root may do. True: there were some.
bool end_stale_connections(uint16_t port);
// Is nothing but such connections in the way of this port?
bool only_stale_connections(uint16_t port);

}  // namespace gpuckpt::restore
