#include "image/socket_text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace gpuckpt::cli {
namespace {

using process::Socket;

std::string address(const uint8_t* bytes, uint32_t count) {
  char text[INET6_ADDRSTRLEN] = "";
  sa_family_t family = 0;
  if (count >= sizeof(family)) memcpy(&family, bytes, sizeof(family));
  const std::string port =
      count >= 4 ? ":" + std::to_string(bytes[2] << 8 | bytes[3]) : std::string();
  if (family == AF_INET && count >= 8 && inet_ntop(AF_INET, bytes + 4, text, sizeof(text)))
    return text + port;
  if (family == AF_INET6 && count >= 24 && inet_ntop(AF_INET6, bytes + 8, text, sizeof(text)))
    return "[" + std::string(text) + "]" + port;
  if (family != AF_UNIX || count <= 2) return "";
  const char* name = reinterpret_cast<const char*>(bytes) + 2;
  const size_t room = std::min<size_t>(count - 2, 108);
  return *name ? std::string(name, strnlen(name, room)) : "@" + std::string(name + 1, room - 1);
}

std::string kind(const Socket& s) {
  const bool network = s.domain == AF_INET || s.domain == AF_INET6;
  if (network && s.type == SOCK_STREAM) return "TCP";
  if (network) return s.type == SOCK_RAW ? "raw" : "UDP";
  if (s.domain == AF_NETLINK) return "netlink";
  if (s.domain == AF_PACKET) return "packet";
  return s.type == SOCK_STREAM ? "unix stream" : s.type == SOCK_DGRAM ? "unix datagram" : "unix";
}

const char* future(const Socket& s) {
  switch (s.state) {
    case process::kSocketListening:
      return " listening";
    case process::kSocketReset:
      return ", comes back reset";
    case process::kSocketPeerGone:
      return ", closed at the other end";
    case process::kSocketWaiting:
      return ", waits to be accepted";
    case process::kSocketConnecting:
      return ", connects once more";
    case process::kSocketStandard:
      return ", comes back as the launcher's";
    case process::kSocketConnection:
    case process::kSocketPair:
      return ", comes back connected";
    default:
      return "";
  }
}

}  // namespace

std::string socket_text(const Socket& s) {
  const std::string own = address(s.name, s.name_bytes);
  const std::string peer = address(s.peer_name, s.peer_name_bytes);
  return kind(s) + (own.empty() ? "" : " " + own) + (peer.empty() ? "" : " to " + peer) + future(s);
}

}  // namespace gpuckpt::cli
