#include "messages.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "store/format/wire_slot.h"

namespace gpuckpt::writer {

void send(int fd, const wire::Msg& message) {
  if (fd < 0) return;
  while (::send(fd, &message, sizeof(message), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

wire::Msg make(uint32_t type, const std::string& text) {
  wire::Msg message{};
  message.magic = wire::kMagic;
  message.version = wire::kWireVersion;
  message.type = type;
  message.text_bytes = static_cast<uint32_t>(std::min(text.size(), sizeof(message.text) - 1));
  memcpy(message.text, text.data(), message.text_bytes);
  return message;
}

void hang_up(int fd) {
  if (fd < 0) return;
  shutdown(fd, SHUT_RD);
  wire::Msg unread;
  while (recv(fd, &unread, sizeof(unread), MSG_DONTWAIT) > 0) {
  }
}

int receive(int fd, wire::Msg* message, int* passed) {
  iovec io{message, sizeof(*message)};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))];
  msghdr m{};
  m.msg_iov = &io, m.msg_iovlen = 1;
  if (passed) m.msg_control = control, m.msg_controllen = sizeof(control);
  ssize_t n;
  do n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n <= 0) return 0;
  for (cmsghdr* c = passed ? CMSG_FIRSTHDR(&m) : nullptr; c; c = CMSG_NXTHDR(&m, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(3 * sizeof(int)))
      memcpy(passed, CMSG_DATA(c), 3 * sizeof(int));
  return store::is_message(*message, static_cast<size_t>(n)) ? 1 : -1;
}

}  // namespace gpuckpt::writer
