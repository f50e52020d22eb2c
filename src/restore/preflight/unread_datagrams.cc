// Which unread datagrams a restore could not put back. Root sends them with any sender's address;
// another user needs the sender's own socket, or its address.

#include <stdio.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "restore/descriptors/socket_names.h"
#include "restore/descriptors/udp_sender.h"
#include "restore/preflight/checks.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

bool is_udp(const Image::Socket& s) { return is_network(s.head) && s.head.type == SOCK_DGRAM; }

bool comes_from_the_job(const Tree& tree, const Image::Message& m) {
  return std::any_of(tree.members.begin(), tree.members.end(), [&](const auto& member) {
    return std::any_of(member->image.sockets.begin(), member->image.sockets.end(),
                       [&](const Image::Socket& s) {
                         return is_udp(s) && is_from(m, s.head) != SentFrom::kElsewhere;
                       });
  });
}

// By any socket of the machine, whatever its address.
bool is_taken(uint16_t port) {
  for (const char* path : {"/proc/net/udp", "/proc/net/udp6"}) {
    std::ifstream table(path);
    for (std::string line; std::getline(table, line);)
      if (unsigned own; sscanf(line.c_str(), " %*u: %*[0-9A-F]:%x", &own) == 1 && own == port)
        return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> check_unread_datagrams(const Tree& tree) {
  if (may_send_raw()) return {};
  std::map<std::string, int> lost;  // sender -> how many
  for (const auto& m : tree.members)
    for (const Image::Message& message : m->image.messages) {
      if (!is_udp(m->image.sockets[message.socket]) || comes_from_the_job(tree, message)) continue;
      const UdpSender sender = sender_of_udp(message);
      if (!sender.port || is_taken(sender.port) || !sender.is_of_this_machine)
        ++lost[sender.text.empty() ? "an unknown sender" : sender.text];
    }
  std::vector<std::string> out;
  for (const auto& [sender, count] : lost)
    out.push_back("a restore drops " + std::to_string(count) + " unread datagrams (UDP) from " +
                  sender +
                  ", which is no socket of the program: only root can send them again in its name");
  return out;
}

}  // namespace gpuckpt::restore
