// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/launch_channel.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

constexpr int kMostFds = 3;

union Control {
  char bytes[CMSG_SPACE(kMostFds * sizeof(int))];
  cmsghdr aligned;
};

Fd make_socket() { return Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

}  // namespace

void LaunchChannel::send(const LaunchMessage& message, const std::vector<int>& fds) {
  iovec bytes{const_cast<LaunchMessage*>(&message), sizeof message};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  Control control{};
  if (!fds.empty()) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  // A dead receiver is noticed where its messages are read.
  while (sendmsg(fd(), &header, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

std::optional<LaunchMessage> LaunchChannel::receive() {
  LaunchMessage message;
  iovec bytes{&message, sizeof message};
  Control control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof control.bytes;
  ssize_t size = 0;
  do size = recvmsg(fd(), &header, MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size != sizeof message) return std::nullopt;
  fds_.clear();
  const cmsghdr* part = CMSG_FIRSTHDR(&header);
  if (part && part->cmsg_type == SCM_RIGHTS) {
    int fds[kMostFds];
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(fds, CMSG_DATA(part), count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) fds_.emplace_back(fds[i]);
  }
  return message;
}

void LaunchChannel::end() { shutdown(fd(), SHUT_WR); }

LaunchListener::LaunchListener() : socket_(make_socket()) {
  // An address of the family alone: the kernel picks a free abstract name.
  sockaddr_un any{};
  any.sun_family = AF_UNIX;
  if (bind(fd(), reinterpret_cast<sockaddr*>(&any), sizeof(sa_family_t)) != 0 ||
      listen(fd(), SOMAXCONN) != 0)
    fail({.op = "launch", .where = "socket", .what = std::strerror(errno)});
}

std::string LaunchListener::address() const {
  sockaddr_un own{};
  socklen_t size = sizeof own;
  getsockname(fd(), reinterpret_cast<sockaddr*>(&own), &size);
  // The name after its leading zero byte: five hexadecimal digits.
  return {own.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1};
}

std::optional<LaunchChannel> LaunchListener::accept() {
  Fd socket(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!socket || getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != geteuid())
    return std::nullopt;
  return LaunchChannel(std::move(socket));
}

LaunchChannel connect_to_launcher(const std::string& address) {
  Fd socket = make_socket();
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::size_t size = std::min(address.size(), sizeof name.sun_path - 1);
  std::memcpy(name.sun_path + 1, address.data(), size);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&name),
              offsetof(sockaddr_un, sun_path) + 1 + size) != 0)
    fail({.op = "launch",
          .where = "launch-rank",
          .what = text("cannot reach the launcher: ", std::strerror(errno)),
          .remedy = "meshtorch launch is for one machine; use mpirun or srun for several"});
  return LaunchChannel(std::move(socket));
}

}  // namespace meshtorch
