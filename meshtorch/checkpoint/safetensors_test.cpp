// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/checkpoint/safetensors.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / text("meshtorch-safetensors-", ::getpid());
    fs::create_directories(folder_);
    path_ = folder_ / "x.safetensors";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A file of this header and data.
  void put(const std::string& header, const std::string& data = "") {
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    put_raw(bytes + header + data);
  }
  void put_raw(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int files() const {
    return static_cast<int>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  std::string path_;
};

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::pair<std::string, at::Tensor>> every_dtype() {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto dtype : {at::kByte, at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                           at::kInt, at::kShort, at::kChar})
    tensors.emplace_back(c10::toString(dtype), at::arange(15, dtype).view({3, 5}));
  tensors.emplace_back("bool", at::arange(5).remainder(2).to(at::kBool));
  tensors.emplace_back("scalar", at::scalar_tensor(2.5));
  tensors.emplace_back("empty", at::empty({0, 4}));
  tensors.emplace_back("layers.3.mlp.up.weight \"quoted\" \xc3\xa5", at::randn({2, 3, 4}));
  return tensors;
}

void write_all(const std::string& path,
               const std::vector<std::pair<std::string, at::Tensor>>& tensors,
               const SafetensorsMetadata& metadata = {}) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(path, entries, metadata);
  for (const auto& [name, tensor] : tensors) writer.write(name, tensor);
  writer.close();
}

TEST_F(Safetensors, every_dtype_comes_back) {
  const auto tensors = every_dtype();
  write_all(path_, tensors, {{"step", "7"}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"step", "7"}}));
  for (const auto& [name, tensor] : tensors) {
    const auto read = file.read(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(read.equal(tensor)) << name;
    EXPECT_TRUE(read.is_contiguous());
  }
  EXPECT_EQ(files(), 1) << "a temporary file is left";
}

TEST_F(Safetensors, data_is_aligned_to_its_dtype) {
  write_all(path_, every_dtype());
  const auto all = bytes();
  std::uint64_t length;
  std::memcpy(&length, all.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  std::size_t item = 8;
  const SafetensorsFile file(path_);
  for (const auto& entry : file.entries()) {
    EXPECT_LE(c10::elementSize(entry.dtype), item) << entry.name;
    if (entry.name != "empty") item = c10::elementSize(entry.dtype);
  }
}

TEST_F(Safetensors, no_tensors) {
  write_all(path_, {});
  EXPECT_TRUE(SafetensorsFile(path_).entries().empty());
}

TEST_F(Safetensors, strides_are_written_row_major) {
  const auto t = at::arange(12.0).view({3, 4}).t();
  write_all(path_, {{"t", t}, {"step", at::arange(10.0).slice(0, 0, 10, 3)}});
  EXPECT_TRUE(SafetensorsFile(path_).read("t").equal(t));
  EXPECT_TRUE(SafetensorsFile(path_).read("step").equal(at::arange(10.0).slice(0, 0, 10, 3)));
}

TEST_F(Safetensors, any_order_and_replacement) {
  write_all(path_, {{"old", at::zeros({1})}});
  {
    SafetensorsWriter writer(path_, {{"a", at::kByte, {3}}, {"b", at::kLong, {2}}});
    writer.write("b", at::full({2}, 5, at::kLong));
    writer.write("a", at::full({3}, 7, at::kByte));
    EXPECT_TRUE(SafetensorsFile(path_).contains("old")) << "replaced before close()";
    writer.close();
    writer.close();
  }
  const SafetensorsFile file(path_);
  EXPECT_FALSE(file.contains("old"));
  EXPECT_TRUE(file.read("a").equal(at::full({3}, 7, at::kByte)));
  EXPECT_TRUE(file.read("b").equal(at::full({2}, 5, at::kLong)));
}

TEST_F(Safetensors, without_close_nothing_changes) {
  { SafetensorsWriter writer(path_, {{"a", at::kFloat, {3}}}); }
  EXPECT_EQ(files(), 0);
}

// Written by the Python package: safetensors 0.8.0.
TEST_F(Safetensors, reads_what_python_wrote) {
  const auto golden = fs::path(__FILE__).parent_path() / "../../tests/golden/python.safetensors";
  const SafetensorsFile file(golden);
  EXPECT_EQ(file.entries().size(), 12u);
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "np"}, {"note", "\xc3\xa5"}}));
  EXPECT_TRUE(file.read("weight").equal(at::arange(6.0f).view({2, 3}) / 2));
  EXPECT_TRUE(file.read("double").equal(torch::tensor({1.0 / 3, -2.0}, at::kDouble)));
  EXPECT_TRUE(file.read("half").equal(torch::tensor({1.5, -0.25}, at::kHalf)));
  EXPECT_TRUE(file.read("bfloat").equal(torch::tensor({1.0, -3.0}, at::kBFloat16)));
  const auto limits = file.read("long");
  EXPECT_EQ(limits[0].item<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(limits[1].item<std::int64_t>(), std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(file.read("int").equal(torch::tensor({-5}, at::kInt)));
  EXPECT_TRUE(file.read("short").equal(torch::tensor({300}, at::kShort)));
  EXPECT_TRUE(file.read("char").equal(torch::tensor({-7, 7, 0}, at::kChar)));
  EXPECT_TRUE(file.read("byte").equal(torch::tensor({255}, at::kByte)));
  EXPECT_TRUE(file.read("mask").equal(torch::tensor({1, 0, 1}, at::kBool)));
  EXPECT_EQ(file.read("scalar").dim(), 0);
  EXPECT_EQ(file.read("scalar").item<float>(), 2.5f);
  EXPECT_EQ(file.read("empty").sizes().vec(), (std::vector<std::int64_t>{0, 4}));
}

// After "[SafetensorsFile] path": what opening the file says.
#define EXPECT_BROKEN(expected)                            \
  EXPECT_EQ(message([&] { SafetensorsFile file(path_); }), \
            "[SafetensorsFile] " + path_ + expected +      \
                "; the file is damaged or not of the safetensors format")

TEST_F(Safetensors, broken_frames) {
  put_raw("");
  EXPECT_BROKEN(": has 0 bytes, too few for a header length");
  put_raw("1234567");
  EXPECT_BROKEN(": has 7 bytes, too few for a header length");
  put_raw(std::string("\x10\0\0\0\0\0\0\0{}", 10));
  EXPECT_BROKEN(": header length 16 exceeds the 2 bytes that follow");
  put_raw(std::string(20, '\xff'));
  EXPECT_BROKEN(": header length 18446744073709551615 exceeds the 12 bytes that follow");
  put("");
  EXPECT_THAT(message([&] { SafetensorsFile file(path_); }), HasSubstr(": header is not JSON, "));
  put("{\"a\": ");
  EXPECT_THAT(message([&] { SafetensorsFile file(path_); }), HasSubstr(": header is not JSON, "));
  put("{\"\xff\": 1}");
  EXPECT_THAT(message([&] { SafetensorsFile file(path_); }), HasSubstr(": header is not JSON, "));
  put("{} trailing");
  EXPECT_THAT(message([&] { SafetensorsFile file(path_); }), HasSubstr(": header is not JSON, "));
  put("[1, 2]");
  EXPECT_BROKEN(": header is not an object but array");
  put("{}", "abc");
  EXPECT_BROKEN(": header describes 0 bytes of data, got 3");
}

TEST_F(Safetensors, deep_nesting_does_not_overflow_the_stack) {
  put(std::string(1'000'000, '['));
  EXPECT_THAT(message([&] { SafetensorsFile file(path_); }), HasSubstr(": header is not JSON, "));
  put("{\"a\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}");
  EXPECT_BROKEN(" a: header entry is not an object");
}

TEST_F(Safetensors, broken_entries) {
  put(R"({"a": 3})");
  EXPECT_BROKEN(" a: header entry is not an object");
  put(R"({"a": {"dtype": "F32", "shape": []}})");
  EXPECT_BROKEN(" a: header entry has no data_offsets");
  put(R"({"a": {"dtype": 1, "shape": [], "data_offsets": [0, 4]}})");
  EXPECT_BROKEN(" a: dtype is not a string");
  put(R"({"a": {"dtype": "F13", "shape": [], "data_offsets": [0, 4]}})");
  EXPECT_EQ(message([&] { SafetensorsFile file(path_); }),
            "[SafetensorsFile] " + path_ +
                " a: unknown dtype F13; use one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL");
  for (const char* shape : {"3", "[-1]", "[1.5]", "[\"2\"]", "[18446744073709551615]", "null"}) {
    put(text(R"({"a": {"dtype": "F32", "shape": )", shape, R"(, "data_offsets": [0, 4]}})"),
        "1234");
    EXPECT_BROKEN(" a: shape is not a list of sizes");
  }
  put(R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}})");
  EXPECT_BROKEN(" a: shape (4611686018427387904, 4) is too large");
  put(R"({"a": {"dtype": "F32", "shape": [0, 4611686018427387904, 4], "data_offsets": [0, 0]}})");
  EXPECT_BROKEN(" a: shape (0, 4611686018427387904, 4) is too large");
  for (const char* offsets : {"[0]", "[0, 4, 8]", "[4, 0]", "[-4, 0]", "4", "[0, 4.0]"}) {
    put(text(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": )", offsets, "}}"), "1234");
    EXPECT_BROKEN(" a: data_offsets is not [begin, end]");
  }
  put(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", "1234");
  EXPECT_BROKEN(" a: shape (2) of F32 takes 8 bytes, got 4 in data_offsets");
  put(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
          "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
      "12");
  EXPECT_BROKEN(": header has the name \"a\" twice");
  put(R"({"a": {"dtype": "U8", "dtype": "I8", "shape": [1], "data_offsets": [0, 1]}})", "1");
  EXPECT_BROKEN(": header has the name \"dtype\" twice");
  put(R"({"__metadata__": []})");
  EXPECT_BROKEN(": __metadata__ is not an object");
  put(R"({"__metadata__": {"step": 3}})");
  EXPECT_BROKEN(": __metadata__ step is not a string");
}

TEST_F(Safetensors, broken_offsets) {
  put(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})", "12");
  EXPECT_BROKEN(" a: data_offsets [0, 4) end beyond the 2 bytes of data; the file is cut short");
  put(R"({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
          "b": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}})",
      "1234");
  EXPECT_BROKEN(" b: data_offsets [2, 4) overlap the tensor before, which ends at 3");
  put(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
          "b": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}})",
      "1234");
  EXPECT_BROKEN(" b: data_offsets [2, 4) leave a hole after 1");
  put(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", "1234");
  EXPECT_BROKEN(": header describes 1 bytes of data, got 4");
  put(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [9223372036854775806, 9223372036854775807]}})");
  EXPECT_BROKEN(
      " a: data_offsets [9223372036854775806, 9223372036854775807) end beyond the 0 bytes of data; "
      "the file is cut short");
}

TEST_F(Safetensors, every_truncation_is_an_error) {
  write_all(path_, {{"w", at::randn({3})}, {"mask", at::ones({5}, at::kBool)}});
  const auto whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put_raw(whole.substr(0, size));
    EXPECT_NE(message([&] { SafetensorsFile file(path_); }), "") << size;
  }
}

// Whatever a flipped byte does, it is an Error or a readable file, never a crash.
TEST_F(Safetensors, every_flipped_byte_is_survived) {
  write_all(path_, {{"w", at::randn({3})}, {"mask", at::ones({5}, at::kBool)}}, {{"k", "v"}});
  const auto whole = bytes();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1, 4, 0x20, 0x80}) {
      auto changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      put_raw(changed);
      message([&] {
        const SafetensorsFile file(path_);
        for (const auto& entry : file.entries()) file.read(entry.name);
      });
    }
  }
}

TEST_F(Safetensors, reading_errors) {
  EXPECT_EQ(
      message([&] { SafetensorsFile file(path_); }),
      "[SafetensorsFile] " + path_ + ": cannot open: No such file or directory; check the path");
  EXPECT_EQ(
      message([&] { SafetensorsFile file(folder_); }),
      "[SafetensorsFile] " + folder_.string() + ": not a regular file; name a .safetensors file");
  write_all(path_, {{"a", at::zeros({2})}, {"b", at::zeros({2})}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(message([&] { file.read("c"); }),
            "[SafetensorsFile] " + path_ + " c: no tensor of this name; the file has: a, b");
  ::truncate(path_.c_str(), static_cast<off_t>(bytes().size() - 1));
  EXPECT_EQ(message([&] { file.read("b"); }),
            "[SafetensorsFile] " + path_ +
                " b: cut short while its data was read; the file is damaged or not "
                "of the safetensors format");
  put(R"({"m": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}})", "\x02");
  EXPECT_THAT(message([&] { SafetensorsFile(path_).read("m"); }),
              HasSubstr(" m: a BOOL is neither 0 nor 1;"));
}

TEST_F(Safetensors, writing_errors) {
  const std::string prefix = "[SafetensorsWriter] " + path_;
  const auto open = [&](std::vector<SafetensorsEntry> entries) {
    return message([&] { SafetensorsWriter writer(path_, std::move(entries)); });
  };
  EXPECT_EQ(open({{"a", at::kFloat, {}}, {"a", at::kFloat, {}}}),
            prefix + " a: two tensors of this name; name each tensor once");
  EXPECT_EQ(open({{"", at::kFloat, {}}}), prefix + ": \"\" cannot name a tensor; use another name");
  EXPECT_EQ(open({{"__metadata__", at::kFloat, {}}}),
            prefix + ": \"__metadata__\" cannot name a tensor; use another name");
  EXPECT_EQ(open({{"a", at::kComplexFloat, {}}}),
            prefix +
                " a: dtype ComplexFloat is not supported; use one of F64 F32 F16 BF16 I64 I32 I16 "
                "I8 U8 BOOL");
  EXPECT_EQ(
      open({{"a", at::kFloat, {2, -1}}}),
      prefix +
          " a: shape (2, -1) has a negative size or is too large; pass the sizes of the tensor");
  EXPECT_THAT(open({{"\xff", at::kFloat, {}}}), HasSubstr(": a name or metadata is not UTF-8, "));
  EXPECT_EQ(message([&] { SafetensorsWriter writer(folder_ / "no" / "x", {}); }),
            "[SafetensorsWriter] " + (folder_ / "no" / "x").string() +
                ": cannot create: No such file or directory; make the folder, or choose one that "
                "can be written");
  {
    SafetensorsWriter writer(path_, {{"a", at::kFloat, {2}}, {"b", at::kFloat, {}}});
    EXPECT_EQ(message([&] { writer.write("c", at::zeros({2})); }),
              prefix + " c: not one of the entries; name every tensor in the constructor");
    EXPECT_EQ(
        message([&] { writer.write("a", at::zeros({3})); }),
        prefix +
            " a: tensor is Float (3), its entry says Float (2); make the entry from the tensor");
    EXPECT_EQ(message([&] { writer.write("a", at::zeros({2}, at::kMeta)); }),
              prefix + " a: not a plain CPU tensor; gather it with full() and move it to the CPU");
    writer.write("a", at::zeros({2}));
    EXPECT_EQ(message([&] { writer.write("a", at::zeros({2})); }),
              prefix + " a: written twice; write each tensor once");
    EXPECT_EQ(message([&] { writer.close(); }),
              prefix + ": closed before these were written: b; write every entry");
    writer.write("b", at::scalar_tensor(1.0f));
    writer.close();
    EXPECT_EQ(message([&] { writer.write("a", at::zeros({2})); }),
              prefix + " a: written after close(); write every tensor before");
  }
  fs::create_directories(folder_ / "taken" / "inside");
  SafetensorsWriter writer(folder_ / "taken", {});
  EXPECT_THAT(message([&] { writer.close(); }), HasSubstr(": cannot finish: "));
}

}  // namespace
}  // namespace meshtorch
