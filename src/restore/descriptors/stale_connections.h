// Connections that have ended, but whose port the kernel keeps for a while (TIME_WAIT, FIN_WAIT).
//
// Owner: none. Threads: one. Errors: false.
#pragma once

#include <cstdint>
#include <set>

namespace gpuckpt::restore {

// Ends those with these local TCP ports. Root asks the kernel. An ordinary user can end a
// connection whose other end was on this machine, too, if that end's port can be bound: see
// end_by_reset(). True: there were some, and fewer are left.
enum class OtherEnd { kAnywhere, kAmongThese };  // its port
bool end_stale_connections(const std::set<uint16_t>& ports, OtherEnd other = OtherEnd::kAnywhere);
// Whether only such connections prevent this port from being bound.
bool only_stale_connections(uint16_t port);

}  // namespace gpuckpt::restore
