// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/device_scope.h>

#include <meshtorch/tensor/memory.h>

namespace meshtorch {

void device_scope::trace() const {
  Trace* trace = Trace::active();
  if (trace == nullptr) return;
  const auto end = Trace::Clock::now();
  trace->op(*op_, current_, begin_, end);
  const MemoryAccount* account = MemoryAccount::active();
  if (account == nullptr || current_ < 0) return;
  std::vector<std::pair<std::string, std::int64_t>> bytes;
  for (const Use use : kUses) bytes.emplace_back(name(use), account->live(current_, use));
  trace->memory(current_, bytes, end);
}

}  // namespace meshtorch
