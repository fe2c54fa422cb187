// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/memory.h>

#include <mutex>

#include <c10/core/CPUAllocator.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>
#include <meshtorch/tensor/memory_book.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {

std::string_view name(Use use) {
  static constexpr std::array<std::string_view, kUses.size()> names{
      "parameters", "gradients", "optimizer", "activations", "communication"};
  return of(names, use);
}

namespace {

std::mutex book_mutex;
MemoryBook* open_book = nullptr;  // the active account's, guarded by book_mutex

// Stands before the allocator that was there. Blocks refer to it, so it is never removed. A block's
// context stays its address, as raw_allocate requires; what is known of the block is in the book.
class CountingAllocator final : public at::Allocator {
 public:
  explicit CountingAllocator(at::Allocator& inner) : inner_(inner) {
    inner_deleter_ = inner.raw_deleter();
  }

  at::DataPtr allocate(std::size_t bytes) override {
    at::DataPtr block = inner_.allocate(bytes);
    const bool counted = block.compare_exchange_deleter(inner_deleter_, &release);
    if (counted && MemoryAccount::active() != nullptr && block.get() != nullptr) {
      const std::lock_guard lock(book_mutex);
      if (open_book != nullptr) {
        open_book->allocated(block.get(), static_cast<std::int64_t>(bytes));
      }
    }
    return block;
  }

  at::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_.copy_data(to, from, bytes);
  }

 private:
  // Out of the book first: once it is freed, another thread may be given the address.
  static void release(void* block) {
    if (MemoryAccount::active() != nullptr) {
      const std::lock_guard lock(book_mutex);
      if (open_book != nullptr) open_book->freed(block);
    }
    inner_deleter_(block);
  }

  at::Allocator& inner_;
  inline static at::DeleterFnPtr inner_deleter_;  // static: a deleter is told nothing but the block
};

[[noreturn]] void fail_allocator(const std::string& what, const std::string& remedy) {
  fail({.op = "MemoryAccount", .where = "CPU allocator", .what = what, .remedy = remedy});
}

CountingAllocator* make_counting(at::Allocator& inner) {
  if (inner.raw_deleter() == nullptr) {
    fail_allocator("has no raw_deleter, so its blocks cannot be followed",
                   "run without an account, or set an allocator that has one");
  }
  auto* counting = new CountingAllocator(inner);
  // A later SetCPUAllocator must work as before, so the priority stays; only trying tells it.
  for (int priority = 0; c10::GetCPUAllocator() != counting; ++priority) {
    c10::SetCPUAllocator(counting, static_cast<std::uint8_t>(priority));
  }
  return counting;
}

void install() {
  static CountingAllocator* const counting = make_counting(*c10::GetCPUAllocator());
  if (c10::GetCPUAllocator() != counting) {
    fail_allocator("another one was set after the first account",
                   "call c10::SetCPUAllocator before the first account is made");
  }
}

Table empty_table() {
  std::vector<Column> columns{{"device"}, {""}};
  for (const Use use : kUses) columns.push_back({std::string(name(use)), Align::right});
  columns.push_back({"total", Align::right});
  return Table(columns);
}

std::string row_title(std::int64_t first, std::int64_t last) {
  if (first == MemoryAccount::kHost) return "host";
  return first == last ? text(first) : text(first, "-", last);
}

std::vector<std::string> row(const std::string& device, const std::string& what,
                             const UseBytes& bytes, const std::string& total) {
  std::vector<std::string> cells{device, what};
  for (const std::int64_t count : bytes) cells.push_back(with_commas(count));
  cells.push_back(total);
  return cells;
}

void add_rows(Table& table, const std::string& title, const DeviceMemory& memory) {
  table.add(row(title, "live", memory.live, with_commas(memory.total)));
  table.add(row("", "at peak", memory.at_peak, with_commas(memory.peak)));
  table.add(row("", "largest", memory.largest, ""));
}

// The last of the neighbours of `first` that hold and held the same; the host has none.
std::int64_t last_equal(const MemoryBook& book, std::int64_t first) {
  std::int64_t last = first;
  while (first != MemoryAccount::kHost && last + 1 < book.devices() &&
         book.memory(last + 1) == book.memory(first)) {
    ++last;
  }
  return last;
}

}  // namespace

MemoryAccount::MemoryAccount(std::int64_t devices, std::size_t samples) {
  if (devices < 1) {
    fail({.op = "MemoryAccount",
          .where = "devices",
          .what = text("got ", devices, ", expected at least 1"),
          .remedy = "give the number of devices of all processes"});
  }
  const std::lock_guard lock(book_mutex);
  if (open_book != nullptr) {
    fail({.op = "MemoryAccount",
          .where = "",
          .what = "an account is active already, expected none",
          .remedy = "use MemoryAccount::active(), or end that one first"});
  }
  install();
  book_ = std::make_unique<MemoryBook>(devices, samples);
  open_book = book_.get();
  active_.store(this, std::memory_order_release);
}

MemoryAccount::~MemoryAccount() {
  const std::lock_guard lock(book_mutex);
  active_.store(nullptr, std::memory_order_release);
  open_book = nullptr;
}

namespace {

// Null where there is none. The checked accessors of a storage would materialize a lazy copy.
const void* block_of(const at::Tensor& local) {
  if (!local.defined() || !local.has_storage()) return nullptr;
  return local.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
}

}  // namespace

void MemoryAccount::assign(const at::Tensor& local, std::int64_t device, Use use) {
  const void* address = block_of(local);
  const std::lock_guard lock(book_mutex);
  if (address != nullptr) book_->assign(address, device, use);
}

void MemoryAccount::adopt(const at::Tensor& local, std::int64_t device) {
  const void* address = block_of(local);
  const std::lock_guard lock(book_mutex);
  if (address != nullptr) book_->adopt(address, device);
}

void account_for(const at::Tensor& tensor, Use use) {
  MemoryAccount* account = MemoryAccount::active();
  const ShardedView* view = account != nullptr ? sharded_view(tensor) : nullptr;
  if (view == nullptr) return;
  const ShardedView& rest = at_rest(*view);
  for (std::size_t d = 0; d < rest.locals().size(); ++d)
    account->assign(rest.locals()[d], device_number(rest.mesh(), d), use);
}

std::int64_t MemoryAccount::live(std::int64_t device) const {
  const std::lock_guard lock(book_mutex);
  return book_->memory(device).total;
}

std::int64_t MemoryAccount::live(std::int64_t device, Use use) const {
  const std::lock_guard lock(book_mutex);
  return of(book_->memory(device).live, use);
}

std::int64_t MemoryAccount::peak(std::int64_t device) const {
  const std::lock_guard lock(book_mutex);
  return book_->memory(device).peak;
}

std::int64_t MemoryAccount::peak(std::int64_t device, Use use) const {
  const std::lock_guard lock(book_mutex);
  return of(book_->memory(device).largest, use);
}

std::int64_t MemoryAccount::at_peak(std::int64_t device, Use use) const {
  const std::lock_guard lock(book_mutex);
  return of(book_->memory(device).at_peak, use);
}

void MemoryAccount::reset_peaks() {
  const std::lock_guard lock(book_mutex);
  book_->reset_peaks();
}

void MemoryAccount::mark(const std::string& name) {
  const std::lock_guard lock(book_mutex);
  book_->mark(name);
}

std::vector<MemorySample> MemoryAccount::timeline() const {
  const std::lock_guard lock(book_mutex);
  return book_->timeline();
}

std::int64_t MemoryAccount::dropped_samples() const {
  const std::lock_guard lock(book_mutex);
  return book_->dropped_samples();
}

std::string MemoryAccount::to_string() const {
  Table table = empty_table();
  const std::lock_guard lock(book_mutex);
  for (std::int64_t first = kHost; first < book_->devices();) {
    const std::int64_t last = last_equal(*book_, first);
    const DeviceMemory& memory = book_->memory(first);
    if (memory.peak > 0) add_rows(table, row_title(first, last), memory);
    first = last + 1;
  }
  return table.to_string();
}

}  // namespace meshtorch
