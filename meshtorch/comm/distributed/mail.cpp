// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/mail.h>

#include <ATen/ATen.h>

#include <meshtorch/comm/distributed/digest.h>

namespace meshtorch {

void Mail::send(int peer, const at::Tensor& tensor) {
  bytes_ += static_cast<std::int64_t>(tensor.nbytes());
  parcel(peer).out.push_back(tensor.contiguous());
}

void Mail::agree(int peer, std::uint64_t value) {
  std::uint64_t& agreed = parcel(peer).agreed;
  agreed = mix(agreed, value);
}

std::int64_t Mail::exchange(Session& session, const Ticket& ticket, bool more) {
  std::vector<Parcel> parcels;
  for (auto& [peer, parcel] : parcels_) parcels.push_back(std::move(parcel));
  parcels_.clear();
  if (!parcels.empty() && more) session.exchange_more(ticket, parcels);
  if (!parcels.empty() && !more) session.exchange(ticket, std::move(parcels));
  return std::exchange(bytes_, 0);
}

Parcel& Mail::parcel(int peer) {
  return parcels_.try_emplace(peer, Parcel{.peer = peer, .out = {}, .in = {}}).first->second;
}

}  // namespace meshtorch
