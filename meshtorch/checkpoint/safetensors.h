// SPDX-License-Identifier: Apache-2.0
//
// Named tensors in one file, in the safetensors format (github.com/huggingface/safetensors), which
// Python reads with `safetensors.torch.load_file`:
//
//   8 bytes            length of the header, little endian
//   header             {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
//   ...,
//                       "__metadata__": {"key": "value", ...}}
//   data               the tensors, row-major, offsets counted from here, no holes and no overlaps
//
// Both classes go tensor by tensor, so that neither ever holds the whole file:
//
//   SafetensorsWriter writer("model.safetensors", {{"w", at::kFloat, {2, 3}}, {"b", at::kFloat,
//   {3}}}); writer.write("w", w); writer.write("b", b); writer.close(); // only now does
//   model.safetensors exist
//
//   SafetensorsFile file("model.safetensors");
//   at::Tensor w = file.read("w");
//
// Tensors are plain and on the CPU; gather a sharded one first. Every failure is an Error that
// starts with the path, also for a file that is cut short or was never of this format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace meshtorch {

// dtype is one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL. A scalar has no shape entries.
struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// A file descriptor that closes itself.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(other.release()) {}
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();
  int get() const { return fd_; }
  int release();

 private:
  int fd_;
};

// Writes "path.tmp-<pid>" and renames it to `path` in close(), so that a reader sees the old file
// or the whole new one. In the file, wide dtypes come first (every tensor is aligned to its item
// size); otherwise the order is that of the entries.
class SafetensorsWriter {
 public:
  // Writes the header. Throws on a repeated, empty or reserved name, an unsupported dtype, a
  // negative size, a folder that does not exist or cannot be written.
  SafetensorsWriter(std::string path, std::vector<SafetensorsEntry> entries,
                    const SafetensorsMetadata& metadata = {});
  // Without close(), for instance because of an exception: removes the temporary file.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Once for each entry, in any order. Throws when the tensor is not what its entry says.
  void write(const std::string& name, const at::Tensor& tensor);

  // Throws, naming them, while entries are unwritten. Flushes to the disk, then renames.
  void close();

 private:
  struct Slot {
    SafetensorsEntry entry;
    std::uint64_t offset = 0;  // in the file
    bool written = false;
  };

  std::string path_, temporary_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, std::size_t> by_name_;
  FileHandle file_;
};

class SafetensorsFile {
 public:
  // Reads and checks the whole header, and that the file is as long as it says.
  explicit SafetensorsFile(std::string path);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in the file's order
  const SafetensorsMetadata& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return by_name_.count(name) > 0; }

  // A new contiguous tensor. Throws when there is no such name (the message lists some) or the
  // file has become shorter. May be called from several threads.
  at::Tensor read(const std::string& name) const;

 private:
  std::string path_;
  FileHandle file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::uint64_t> offsets_;  // in the file, one per entry
  std::unordered_map<std::string, std::size_t> by_name_;
  SafetensorsMetadata metadata_;
};

}  // namespace meshtorch
