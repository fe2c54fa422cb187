// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/checkpoint/safetensors.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kPrefix = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // that of the reference implementation
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kReader = "SafetensorsFile";
constexpr const char* kWriter = "SafetensorsWriter";

struct Dtype {
  const char* name;
  at::ScalarType type;
};
constexpr std::array<Dtype, 10> kDtypes{{{"F64", at::kDouble},
                                         {"F32", at::kFloat},
                                         {"F16", at::kHalf},
                                         {"BF16", at::kBFloat16},
                                         {"I64", at::kLong},
                                         {"I32", at::kInt},
                                         {"I16", at::kShort},
                                         {"I8", at::kChar},
                                         {"U8", at::kByte},
                                         {"BOOL", at::kBool}}};
constexpr const char* kDtypeNames = "use one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL";

const char* name_of(at::ScalarType type) {
  for (const auto& dtype : kDtypes)
    if (dtype.type == type) return dtype.name;
  return nullptr;
}

std::optional<at::ScalarType> type_of(const std::string& name) {
  for (const auto& dtype : kDtypes)
    if (name == dtype.name) return dtype.type;
  return std::nullopt;
}

// Bytes of a tensor; nothing when they do not fit in 63 bits. A zero in the shape does not excuse
// the other sizes: torch would multiply them for the strides.
std::optional<std::uint64_t> bytes_of(const SafetensorsEntry& entry) {
  std::int64_t all = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  bool empty = false;
  for (const auto size : entry.shape) {
    if (size < 0) return std::nullopt;
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(all, size, &all))
      return std::nullopt;
  }
  return empty ? 0 : static_cast<std::uint64_t>(all);
}

std::string shape_text(c10::IntArrayRef shape) { return "(" + join(shape) + ")"; }

std::string cause() { return std::strerror(errno); }

[[noreturn]] void not_safetensors(const std::string& path, const std::string& what) {
  fail({kReader, path, what, "the file is damaged or not of the safetensors format"});
}

// Reads exactly `size` bytes; false at the end of the file.
bool read_at(int fd, void* out, std::uint64_t size, std::uint64_t offset) {
  auto* bytes = static_cast<char*>(out);
  while (size > 0) {
    const auto n =
        ::pread(fd, bytes, static_cast<std::size_t>(std::min<std::uint64_t>(size, 1u << 30)),
                static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n, size -= static_cast<std::uint64_t>(n), offset += static_cast<std::uint64_t>(n);
  }
  return true;
}

void write_at(const std::string& path, int fd, const void* data, std::uint64_t size,
              std::uint64_t offset) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto n =
        ::pwrite(fd, bytes, static_cast<std::size_t>(std::min<std::uint64_t>(size, 1u << 30)),
                 static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail({kWriter, path, "cannot write: " + cause(), "free some space on the disk"});
    bytes += n, size -= static_cast<std::uint64_t>(n), offset += static_cast<std::uint64_t>(n);
  }
}

// A folder's entry is durable only once the folder itself is flushed; best effort.
void flush_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const FileHandle handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() >= 0) ::fsync(handle.get());
}

// nlohmann keeps the last of two equal keys; here they are an error.
Json parse_header(const std::string& path, const std::string& header) {
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      repeated = value.get<std::string>();
    return true;
  };
  Json json;
  try {
    json = Json::parse(header, watch);
  } catch (const Json::exception& error) {
    not_safetensors(path, text("header is not JSON, ", error.what()));
  }
  if (!repeated.empty())
    not_safetensors(path, text("header has the name \"", repeated, "\" twice"));
  if (!json.is_object())
    not_safetensors(path, text("header is not an object but ", json.type_name()));
  return json;
}

struct Located {
  SafetensorsEntry entry;
  std::uint64_t begin = 0, end = 0;
};

std::optional<std::vector<std::uint64_t>> unsigned_list(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<std::uint64_t> list;
  for (const auto& value : json) {
    if (!value.is_number_unsigned()) return std::nullopt;
    list.push_back(value.get<std::uint64_t>());
    if (list.back() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return std::nullopt;
  }
  return list;
}

Located parse_entry(const std::string& path, const std::string& name, const Json& json) {
  const std::string where = path + " " + name;
  if (!json.is_object()) not_safetensors(where, "header entry is not an object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!json.contains(key)) not_safetensors(where, text("header entry has no ", key));
  if (!json["dtype"].is_string()) not_safetensors(where, "dtype is not a string");
  const auto dtype = type_of(json["dtype"].get<std::string>());
  if (!dtype)
    fail({kReader, where, text("unknown dtype ", json["dtype"].get<std::string>()), kDtypeNames});
  const auto shape = unsigned_list(json["shape"]);
  if (!shape) not_safetensors(where, "shape is not a list of sizes");
  const auto offsets = unsigned_list(json["data_offsets"]);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1])
    not_safetensors(where, "data_offsets is not [begin, end]");

  Located located{{name, *dtype, {shape->begin(), shape->end()}}, (*offsets)[0], (*offsets)[1]};
  const auto bytes = bytes_of(located.entry);
  if (!bytes)
    not_safetensors(where, text("shape ", shape_text(located.entry.shape), " is too large"));
  if (*bytes != located.end - located.begin)
    not_safetensors(
        where, text("shape ", shape_text(located.entry.shape), " of ", name_of(*dtype), " takes ",
                    *bytes, " bytes, got ", located.end - located.begin, " in data_offsets"));
  return located;
}

SafetensorsMetadata parse_metadata(const std::string& path, const Json& json) {
  SafetensorsMetadata metadata;
  if (!json.is_object()) not_safetensors(path, "__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) not_safetensors(path, text("__metadata__ ", key, " is not a string"));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Entries by offset must follow each other from 0 to the end of the data.
void check_cover(const std::string& path, const std::vector<Located>& sorted, std::uint64_t data) {
  std::uint64_t end = 0;
  for (const auto& [entry, begin, entry_end] : sorted) {
    const std::string where = path + " " + entry.name;
    const std::string range = text("data_offsets [", begin, ", ", entry_end, ")");
    if (entry_end > data)
      not_safetensors(
          where, text(range, " end beyond the ", data, " bytes of data; the file is cut short"));
    if (begin < end)
      not_safetensors(where, text(range, " overlap the tensor before, which ends at ", end));
    if (begin > end) not_safetensors(where, text(range, " leave a hole after ", end));
    end = entry_end;
  }
  if (end != data)
    not_safetensors(path, text("header describes ", end, " bytes of data, got ", data));
}

}  // namespace

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

int FileHandle::release() { return std::exchange(fd_, -1); }

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<SafetensorsEntry> entries,
                                     const SafetensorsMetadata& metadata)
    : path_(std::move(path)), temporary_(text(path_, ".tmp-", ::getpid())) {
  for (auto& entry : entries) {
    const std::string where = path_ + " " + entry.name;
    if (entry.name.empty() || entry.name == kMetadata)
      fail({kWriter, path_, text("\"", entry.name, "\" cannot name a tensor"), "use another name"});
    if (name_of(entry.dtype) == nullptr)
      fail({kWriter, where, text("dtype ", entry.dtype, " is not supported"), kDtypeNames});
    if (!bytes_of(entry))
      fail({kWriter, where,
            text("shape ", shape_text(entry.shape), " has a negative size or is too large"),
            "pass the sizes of the tensor"});
    if (!by_name_.emplace(entry.name, slots_.size()).second)
      fail({kWriter, where, "two tensors of this name", "name each tensor once"});
    slots_.push_back({std::move(entry)});
  }

  std::vector<std::size_t> order(slots_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return c10::elementSize(slots_[a].entry.dtype) > c10::elementSize(slots_[b].entry.dtype);
  });
  Json json = Json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  std::uint64_t end = 0;
  for (const auto i : order) {
    auto& slot = slots_[i];
    slot.offset = end;
    end += *bytes_of(slot.entry);
    json[slot.entry.name] = {{"dtype", name_of(slot.entry.dtype)},
                             {"shape", slot.entry.shape},
                             {"data_offsets", {slot.offset, end}}};
  }
  std::string header;
  try {
    header = json.dump();
  } catch (const Json::exception& error) {
    fail({kWriter, path_, text("a name or metadata is not UTF-8, ", error.what()), "use UTF-8"});
  }
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  if (header.size() > kMaxHeader)
    fail({kWriter, path_, text("header of ", header.size(), " bytes, readers accept ", kMaxHeader),
          "write several files"});
  for (auto& slot : slots_) slot.offset += kPrefix + header.size();

  file_ = FileHandle(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file_.get() < 0)
    fail({kWriter, path_, "cannot create: " + cause(),
          "make the folder, or choose one that can be written"});
  try {
    const std::uint64_t length = header.size();
    write_at(path_, file_.get(), &length, kPrefix, 0);
    write_at(path_, file_.get(), header.data(), header.size(), kPrefix);
  } catch (...) {
    ::unlink(temporary_.c_str());  // no destructor runs for a throwing constructor
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_.get() >= 0) ::unlink(temporary_.c_str());
}

void SafetensorsWriter::write(const std::string& name, const at::Tensor& tensor) {
  const std::string where = path_ + " " + name;
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    fail({kWriter, where, "not one of the entries", "name every tensor in the constructor"});
  auto& slot = slots_[found->second];
  if (file_.get() < 0) fail({kWriter, where, "written after close()", "write every tensor before"});
  if (slot.written) fail({kWriter, where, "written twice", "write each tensor once"});
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu() ||
      tensor.layout() != at::kStrided)
    fail(
        {kWriter, where, "not a plain CPU tensor", "gather it with full() and move it to the CPU"});
  if (tensor.scalar_type() != slot.entry.dtype ||
      tensor.sizes() != c10::IntArrayRef(slot.entry.shape))
    fail({kWriter, where,
          text("tensor is ", tensor.scalar_type(), " ", shape_text(tensor.sizes()),
               ", its entry says ", slot.entry.dtype, " ", shape_text(slot.entry.shape)),
          "make the entry from the tensor"});
  const at::Tensor data = tensor.detach().resolve_neg().contiguous();
  write_at(path_, file_.get(), data.const_data_ptr(), *bytes_of(slot.entry), slot.offset);
  slot.written = true;
}

void SafetensorsWriter::close() {
  if (file_.get() < 0) return;
  std::vector<std::string> missing;
  for (const auto& slot : slots_)
    if (!slot.written) missing.push_back(slot.entry.name);
  if (!missing.empty())
    fail({kWriter, path_, "closed before these were written: " + join(missing),
          "write every entry"});
  if (::fsync(file_.get()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail({kWriter, path_, "cannot finish: " + cause(),
          "check the disk and that no folder has this name"});
  file_ = FileHandle();
  flush_folder(path_);
}

SafetensorsFile::SafetensorsFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0)
    fail({kReader, path_, "cannot open: " + cause(), "check the path"});
  if (!S_ISREG(status.st_mode))
    fail({kReader, path_, "not a regular file", "name a .safetensors file"});
  const auto size = static_cast<std::uint64_t>(status.st_size);

  std::uint64_t length = 0;
  if (size < kPrefix || !read_at(file_.get(), &length, kPrefix, 0))
    not_safetensors(path_, text("has ", size, " bytes, too few for a header length"));
  if (length > size - kPrefix)
    not_safetensors(path_, text("header length ", length, " exceeds the ", size - kPrefix,
                                " bytes that follow"));
  if (length > kMaxHeader)
    not_safetensors(path_, text("header length ", length, " exceeds the limit of ", kMaxHeader));
  std::string header(static_cast<std::size_t>(length), '\0');
  if (!read_at(file_.get(), header.data(), length, kPrefix))
    not_safetensors(path_, "cut short while its header was read");

  const Json json = parse_header(path_, header);
  std::vector<Located> located;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata)
      metadata_ = parse_metadata(path_, value);
    else
      located.push_back(parse_entry(path_, name, value));
  }
  // Empty tensors share their offset with the one behind: they go first.
  std::stable_sort(located.begin(), located.end(), [](const Located& a, const Located& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_cover(path_, located, size - kPrefix - length);
  for (auto& [entry, begin, end] : located) {
    by_name_.emplace(entry.name, entries_.size());
    entries_.push_back(std::move(entry));
    offsets_.push_back(kPrefix + length + begin);
  }
}

at::Tensor SafetensorsFile::read(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    std::vector<std::string> some;
    for (const auto& entry : entries_)
      if (some.size() < 8) some.push_back(entry.name);
    if (some.size() < entries_.size()) some.push_back("...");
    fail({kReader, path_ + " " + name, "no tensor of this name", "the file has: " + join(some)});
  }
  const auto& entry = entries_[found->second];
  const auto bytes = *bytes_of(entry);
  at::AutoDispatchBelowADInplaceOrView plain;
  const at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
  if (!read_at(file_.get(), tensor.mutable_data_ptr(), bytes, offsets_[found->second]))
    not_safetensors(path_ + " " + name, "cut short while its data was read");
  if (entry.dtype == at::kBool) {
    // A bool of any other byte is undefined behaviour wherever it is used.
    const auto* values = static_cast<const unsigned char*>(tensor.const_data_ptr());
    if (std::any_of(values, values + bytes, [](unsigned char v) { return v > 1; }))
      not_safetensors(path_ + " " + name, "a BOOL is neither 0 nor 1");
  }
  return tensor;
}

}  // namespace meshtorch
