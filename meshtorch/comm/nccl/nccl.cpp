// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/nccl/nccl.h>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/distributed/poll.h>
#include <meshtorch/comm/nccl/device.h>

namespace meshtorch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 1000;  // polls before the core is offered to others
constexpr auto kFinalWithin = std::chrono::seconds(10);

// `in progress` is no error: every communicator here is non-blocking, so that a process whose peer
// is gone can still hear why.
void check(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw TransportError(text(call, ": ", ncclGetErrorString(result), ". ", ncclGetLastError(comm)));
}

// Calls that NCCL takes as one. Closed in any case: NCCL counts the open ones of each thread.
class Group {
 public:
  Group() { check(ncclGroupStart(), "ncclGroupStart"); }
  ~Group() {
    if (open_) ncclGroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void end(ncclComm_t comm) {
    open_ = false;
    check(ncclGroupEnd(), "ncclGroupEnd", comm);
  }

 private:
  bool open_ = true;
};

// The tensors on CUDA devices, or the others; without the parcels that are empty then.
std::vector<Parcel> part(const std::vector<Parcel>& parcels, bool cuda) {
  std::vector<Parcel> result;
  for (const Parcel& parcel : parcels) {
    Parcel some{.peer = parcel.peer, .out = {}, .in = {}};
    for (const at::Tensor& tensor : parcel.out) {
      if (tensor.is_cuda() == cuda) some.out.push_back(tensor);
    }
    for (const at::Tensor& tensor : parcel.in) {
      if (tensor.is_cuda() == cuda) some.in.push_back(tensor);
    }
    if (!some.out.empty() || !some.in.empty()) result.push_back(std::move(some));
  }
  return result;
}

// One NCCL communicator of all processes, and the stream that it works on.
class Link {
 public:
  explicit Link(c10::DeviceIndex device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(true, device)) {}
  ~Link() { end(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  bool connected() const { return comm_ != nullptr; }

  void connect(const ncclUniqueId& id, int process, int processes, const Waiting& waiting) {
    const c10::cuda::CUDAGuard guard(device_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&comm_, processes, id, process, &config),
          "ncclCommInitRankConfig");
    poll_until([this] { return settled(); }, kSpins, waiting);
  }

  void exchange(const std::vector<Parcel>& parcels, const Waiting& waiting) {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device_);
    ready_.record(current);
    ready_.block(stream_);
    Group group;
    for (const Parcel& parcel : parcels) post(parcel);
    group.end(comm_);
    poll_until([this] { return settled(); }, kSpins,
               waiting);  // before, the stream may not have the work yet
    done_.record(stream_);
    done_.block(current);
    poll_until([this] { return settled() && done_.query(); }, kSpins, waiting);
  }

  // Ends what is in flight, here; peers find out from their sessions.
  void abort() noexcept {
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
  }

 private:
  void post(const Parcel& parcel) {
    for (const at::Tensor& tensor : parcel.in) {
      check_device(tensor);
      if (tensor.nbytes() == 0) continue;
      check(ncclRecv(tensor.mutable_data_ptr(), tensor.nbytes(), ncclInt8, parcel.peer, comm_,
                     stream_),
            "ncclRecv", comm_);
    }
    for (const at::Tensor& tensor : parcel.out) {
      check_device(tensor);
      if (tensor.nbytes() == 0) continue;
      check(
          ncclSend(tensor.const_data_ptr(), tensor.nbytes(), ncclInt8, parcel.peer, comm_, stream_),
          "ncclSend", comm_);
    }
  }

  void check_device(const at::Tensor& tensor) const {
    if (tensor.device().index() == device_) return;
    fail({.op = "nccl",
          .where = "",
          .what = text("got a tensor on ", tensor.device(),
                       ", this process drives cuda:", static_cast<int>(device_)),
          .remedy =
              "use one CUDA device a process, the one that is current once the communicator is "
              "made"});
  }

  // Whether what was asked of the communicator is under way. Throws what failed in the background.
  bool settled() {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
    check(state, "NCCL", comm_);
    return state == ncclSuccess;
  }

  // In order with the other processes, which are here too; where they are not after all, without
  // them.
  void end() noexcept {
    if (comm_ == nullptr) return;
    ncclResult_t state = ncclCommFinalize(comm_);
    const auto begin = Clock::now();
    while (state == ncclInProgress && Clock::now() - begin < kFinalWithin) {
      std::this_thread::sleep_for(kPollPause);
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    }
    if (state != ncclSuccess) return abort();
    ncclCommDestroy(std::exchange(comm_, nullptr));
  }

  const c10::DeviceIndex device_;
  const c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent ready_, done_;
  ncclComm_t comm_ = nullptr;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::unique_ptr<Transport> host, c10::DeviceIndex device)
      : host_(std::move(host)), link_(device) {}
  ~NcclTransport() override {
    if (broken_) link_.abort();
  }

  int process() const override { return host_->process(); }
  int processes() const override { return host_->processes(); }
  // Only in the thread that waits: its current stream is the one that its tensors are in order
  // with.
  bool any_thread() const override { return false; }
  bool headers_first() const override { return true; }

  void exchange(const std::vector<Parcel>& parcels, const Waiting& waiting) override {
    if (broken_) throw TransportError("NCCL was given up after an error");
    try {
      host_->exchange(part(parcels, false), waiting);
      if (!link_.connected()) connect(parcels, waiting);
      const std::vector<Parcel> device_parcels = part(parcels, true);
      if (!device_parcels.empty()) link_.exchange(device_parcels, waiting);
    } catch (const c10::Error& error) {
      abort();
      throw TransportError(error.what_without_backtrace());
    } catch (...) {
      abort();
      throw;
    }
  }

  void tell(int peer, const std::string& notice) noexcept override { host_->tell(peer, notice); }
  std::optional<std::pair<int, std::string>> hear() override { return host_->hear(); }
  // Maybe not the thread that exchanges: that one hears of it, and ends what is in flight.
  void give_up(bool by_itself) noexcept override {
    broken_ = true;
    host_->give_up(by_itself);
  }
  void leave() noexcept override { host_->leave(); }

 private:
  void abort() noexcept {
    broken_ = true;
    link_.abort();
  }

  // Process 0 makes the name under which all meet.
  void connect(const std::vector<Parcel>& parcels, const Waiting& waiting) {
    if (static_cast<int>(parcels.size()) != processes() - 1)
      throw TransportError("the first exchange is not with all processes");
    ncclUniqueId id{};
    at::Tensor bytes = at::zeros({sizeof id}, at::kByte);
    std::vector<Parcel> names;
    if (process() == 0) {
      check(ncclGetUniqueId(&id), "ncclGetUniqueId");
      std::memcpy(bytes.mutable_data_ptr(), &id, sizeof id);
      for (const Parcel& parcel : parcels)
        names.push_back({.peer = parcel.peer, .out = {bytes}, .in = {}});
    } else {
      names.push_back({.peer = 0, .out = {}, .in = {bytes}});
    }
    host_->exchange(names, waiting);
    std::memcpy(&id, bytes.const_data_ptr(), sizeof id);
    link_.connect(id, process(), processes(), waiting);
  }

  const std::unique_ptr<Transport> host_;
  std::atomic<bool> broken_ = false;
  Link link_;
};

}  // namespace

std::string nccl_library() {
  int version = 0;
  ncclGetVersion(&version);
  return text("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::unique_ptr<Transport> make_nccl_transport(std::unique_ptr<Transport> host) {
  const int device = cuda_device_of(read_environment(), c10::cuda::device_count());
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  return std::make_unique<NcclTransport>(std::move(host), static_cast<c10::DeviceIndex>(device));
}

}  // namespace meshtorch
