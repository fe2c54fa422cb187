// SPDX-License-Identifier: Apache-2.0
//
// What goes to whom in one round of a collective: collected, then exchanged at once.
#pragma once

#include <map>

#include <meshtorch/comm/distributed/session.h>

namespace meshtorch {

class Mail {
 public:
  // In an order that both sides know.
  void send(int peer, const at::Tensor& tensor);
  // Of a contiguous tensor, which is written.
  void receive(int peer, const at::Tensor& tensor) { parcel(peer).in.push_back(tensor); }

  // What both sides must have alike, beside the shapes of what they send.
  void agree(int peer, std::uint64_t value);

  // Returns the bytes sent. `more`: Session::exchange_more.
  std::int64_t exchange(Session& session, const Ticket& ticket, bool more = false);

 private:
  Parcel& parcel(int peer);
  std::map<int, Parcel> parcels_;
  std::int64_t bytes_ = 0;
};

}  // namespace meshtorch
