// Messages between the library and the writer (include/gpuckpt/wire.h), one socket for each source.
//
// Owner: the caller, of the descriptors too. Threads: one per socket. Errors: as each function
// says; a source that is gone takes no messages, and that is no error.
#pragma once

#include <string>

#include "gpuckpt/wire.h"

namespace gpuckpt::writer {

wire::Msg make(uint32_t type, const std::string& text = "");
void send(int fd, const wire::Msg& message);
// 1: a message, 0: the other side has closed, -1: not a message of this protocol. `passed`: room
// for the three descriptors of kMsgMember.
int receive(int fd, wire::Msg* message, int* passed = nullptr);
// Reads unread messages before closing: closing with some unread would reset the connection, and
// the other side would lose our last message.
void hang_up(int fd);

}  // namespace gpuckpt::writer
