// SPDX-License-Identifier: Apache-2.0
//
// How `meshtorch launch` and its helpers talk, one helper beside each rank (launch_rank.h): a local
// socket of whole messages, in the abstract name space, so that no file is left behind, and for
// processes of the same user only. The end of one side is seen by the other as the end of messages,
// however it came.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <meshtorch/cli/subprocess.h>

namespace meshtorch {

struct LaunchMessage {
  enum Kind {
    kHello,   // helper: value is its rank
    kStart,   // launcher: start the program; with its three standard streams
    kSignal,  // launcher: send signal `value` to the program
    kExit,    // helper: the program ended, value is what waitpid said
  };
  Kind kind = kHello;
  int value = 0;
  bool asked = false;  // kExit: only after it had been told to
};

class LaunchChannel {
 public:
  explicit LaunchChannel(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  void send(const LaunchMessage& message, const std::vector<int>& fds = {});
  // Waits for one. None: the other side has ended, or wants this one to end.
  std::optional<LaunchMessage> receive();
  std::vector<Fd> take_fds() { return std::move(fds_); }  // those that came with the last message
  void end();  // the other side receives none; what it sends still comes

 private:
  Fd socket_;
  std::vector<Fd> fds_;
};

class LaunchListener {
 public:
  LaunchListener();             // throws Error: no sockets
  std::string address() const;  // for `connect_to_launcher`
  int fd() const { return socket_.get(); }
  std::optional<LaunchChannel> accept();  // none: another user's process

 private:
  Fd socket_;
};

// Throws Error: no one listens there, for example on another machine.
LaunchChannel connect_to_launcher(const std::string& address);

}  // namespace meshtorch
