// SPDX-License-Identifier: Apache-2.0
#include "instance.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch::conformance {
namespace {

c10::TypePtr inner(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
  return type;
}

bool is_optional(const c10::TypePtr& type) { return type->cast<c10::OptionalType>() != nullptr; }

bool is_tensor(const c10::TypePtr& type) {
  return inner(type)->kind() == c10::TypeKind::TensorType;
}

c10::IValue word_value(const std::string& word, const std::string& where) {
  static const std::map<std::string, std::int64_t> words{
      {"float", static_cast<std::int64_t>(at::kFloat)},
      {"double", static_cast<std::int64_t>(at::kDouble)},
      {"half", static_cast<std::int64_t>(at::kHalf)},
      {"bfloat16", static_cast<std::int64_t>(at::kBFloat16)},
      {"long", static_cast<std::int64_t>(at::kLong)},
      {"int", static_cast<std::int64_t>(at::kInt)},
      {"bool", static_cast<std::int64_t>(at::kBool)},
      {"byte", static_cast<std::int64_t>(at::kByte)},
      {"complex_double", static_cast<std::int64_t>(at::kComplexDouble)},
      {"complex_float", static_cast<std::int64_t>(at::kComplexFloat)},
      {"strided", static_cast<std::int64_t>(at::kStrided)},
      {"contiguous", static_cast<std::int64_t>(at::MemoryFormat::Contiguous)},
      {"preserve", static_cast<std::int64_t>(at::MemoryFormat::Preserve)},
      {"channels_last", static_cast<std::int64_t>(at::MemoryFormat::ChannelsLast)}};
  const auto found = words.find(word);
  if (found != words.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, value] : words) names.push_back(name);
  fail({"conformance", where, "\"" + word + "\" is no dtype or format",
        "use one of: " + join(names)});
}

// Multiples of 2^-30 are sums and differences of each other without rounding.
at::Tensor rounded(const at::Tensor& x) { return at::round(x.mul(1073741824.0)).div(1073741824.0); }

}  // namespace

Instance::Instance(const Case& of, Sizes sizes) : of_(of), sizes_(std::move(sizes)) {
  for (const auto& schema : of.handle.schema().arguments()) {
    const auto given = std::find_if(of.arguments.begin(), of.arguments.end(),
                                    [&](const auto& each) { return each.first == schema.name(); });
    const Value* value = given == of.arguments.end() ? nullptr : &given->second;
    auto bad = [&](const std::string& what) {
      fail({"conformance", of.where, text("argument ", schema.name(), " ", what),
            "see the op's schema: " + toString(of.handle.schema())});
    };
    Slot slot;
    auto add = [&](const Value& each, const std::string& name) {
      if (each.kind != Value::Kind::tensor && each.kind != Value::Kind::absent)
        bad("wants a tensor, <a,b> or ?");
      texts_.push_back(each.tensor ? &*each.tensor : nullptr);
      names_.push_back(name);
      ++slot.operands;
    };
    const auto list = inner(schema.type())->cast<c10::ListType>();
    if (is_tensor(schema.type())) {
      slot.kind = Slot::Kind::tensor;
      const Value none;
      if ((value == nullptr || value->kind == Value::Kind::absent) && !is_optional(schema.type()))
        bad("is missing");
      add(value ? *value : none, schema.name());
    } else if (list && is_tensor(list->getElementType())) {
      slot.kind =
          is_optional(list->getElementType()) ? Slot::Kind::optional_list : Slot::Kind::list;
      if (value == nullptr || value->kind == Value::Kind::absent) {
        if (!is_optional(schema.type())) bad("is missing");
        slot.kind = Slot::Kind::attribute;
      } else {
        if (value->kind != Value::Kind::list) bad("wants a list of tensors, [<a>,<b>]");
        for (std::size_t k = 0; k < value->list.size(); ++k)
          add(value->list[k], text(schema.name(), "[", k, "]"));
      }
    } else if (value != nullptr) {
      slot.attribute = argument(schema, *value);
    } else if (schema.default_value()) {
      slot.attribute = *schema.default_value();
    } else if (!is_optional(schema.type())) {
      bad("is missing");
    }
    slots_.push_back(std::move(slot));
  }
}

c10::IValue Instance::argument(const c10::Argument& schema, const Value& value) const {
  const c10::TypePtr type = inner(schema.type());
  const auto list = type->cast<c10::ListType>();
  if (!list || value.kind == Value::Kind::absent)
    return element(schema.type(), schema.real_type(), value, schema.name());
  std::vector<Value> values = value.list;
  if (value.kind != Value::Kind::list)
    values.assign(static_cast<std::size_t>(schema.N().value_or(1)), value);
  c10::impl::GenericList elements(list->getElementType());
  for (const Value& each : values)
    elements.push_back(
        element(list->getElementType(), list->getElementType(), each, schema.name()));
  return elements;
}

c10::IValue Instance::element(const c10::TypePtr& type, const c10::TypePtr&, const Value& value,
                              const std::string& name) const {
  auto bad = [&](const std::string& expected) {
    fail({"conformance", of_.where, "argument " + name + " does not fit its type " + type->str(),
          "give " + expected});
  };
  if (value.kind == Value::Kind::absent) {
    if (!is_optional(type)) bad("a value, not none");
    return {};
  }
  const c10::TypePtr plain = inner(type);
  switch (plain->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      if (value.kind == Value::Kind::integer) return value.integer->evaluate(sizes_);
      if (value.kind == Value::Kind::word) return word_value(value.word, of_.where + " " + name);
      bad("an integer or a dtype");
      break;
    case c10::TypeKind::FloatType:
      if (value.kind == Value::Kind::number) return value.number;
      if (value.kind == Value::Kind::integer)
        return static_cast<double>(value.integer->evaluate(sizes_));
      bad("a number");
      break;
    case c10::TypeKind::NumberType:
      if (value.kind == Value::Kind::number) return value.number;
      if (value.kind == Value::Kind::integer) return value.integer->evaluate(sizes_);
      if (value.kind == Value::Kind::boolean) return value.boolean;
      bad("a number");
      break;
    case c10::TypeKind::BoolType:
      if (value.kind == Value::Kind::boolean) return value.boolean;
      bad("true or false");
      break;
    case c10::TypeKind::StringType:
      if (value.kind == Value::Kind::word) return value.word;
      bad("a quoted word");
      break;
    case c10::TypeKind::DeviceObjType:
      if (value.kind == Value::Kind::word) return at::Device(value.word);
      bad("a device, cpu");
      break;
    default:
      bad("nothing: this type has no text form");
  }
  return {};
}

bool Instance::possible() const {
  for (const TensorText* text : texts_) {
    if (text == nullptr) continue;
    for (const Expression& dim : text->dims) {
      if (dim.evaluate(sizes_) < 0) return false;
    }
  }
  return true;
}

Shape Instance::shape(std::size_t i) const {
  Shape sizes;
  for (const Expression& dim : texts_[i]->dims) sizes.push_back(dim.evaluate(sizes_));
  return sizes;
}

Tensors Instance::values(std::uint64_t seed) const {
  Tensors tensors;
  at::Generator random = at::detail::createCPUGenerator(seed);
  const auto doubles = at::TensorOptions(at::kDouble);
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (texts_[i] == nullptr) {
      tensors.emplace_back();
      continue;
    }
    const Shape sizes = shape(i);
    const std::string& kind = texts_[i]->kind;
    const std::int64_t limit =
        texts_[i]->parameter ? std::max<std::int64_t>(texts_[i]->parameter->evaluate(sizes_), 1)
                             : 0;
    auto normal = [&] { return at::randn(sizes, random, doubles); };
    auto uniform = [&](double low, double high) {
      return at::rand(sizes, random, doubles).mul(high - low).add(low);
    };
    auto integers = [&](std::int64_t low, std::int64_t high) {
      return at::randint(low, high, sizes, random, at::TensorOptions(at::kLong));
    };
    at::Tensor x;
    if (kind == "real") {
      x = rounded(normal());
    } else if (kind == "positive") {
      x = rounded(uniform(0.1, 2));
    } else if (kind == "unit") {
      x = rounded(uniform(0.05, 0.95));
    } else if (kind == "nonzero") {
      x = rounded(uniform(0.5, 1.5).mul(integers(0, 2).mul(2).sub(1)));
    } else if (kind == "distinct") {
      const std::int64_t n = numel(sizes);
      x = at::randperm(n, random, doubles)
              .sub(0.5 * static_cast<double>(n))
              .mul(0.375)
              .add(0.0625)
              .view(sizes);
    } else if (kind == "float" || kind == "half" || kind == "bfloat16") {
      x = normal().to(kind == "float" ? at::kFloat : kind == "half" ? at::kHalf : at::kBFloat16);
    } else if (kind == "ascending") {
      x = rounded(sizes.empty() ? normal() : uniform(0.2, 1).cumsum(-1).sub(1.5));
    } else if (kind == "extreme") {
      const double infinity = std::numeric_limits<double>::infinity();
      const at::Tensor choice = integers(0, 6);
      x = rounded(normal());
      x.masked_fill_(choice.eq(0), infinity);
      x.masked_fill_(choice.eq(1), -infinity);
      x.masked_fill_(choice.eq(2), std::nan(""));
    } else if (kind == "int") {
      x = integers(-9, 10);
    } else if (kind == "count") {
      x = integers(1, 6);
    } else if (kind == "index") {
      x = integers(0, limit);
    } else if (kind == "int32") {
      x = integers(0, limit).to(at::kInt);
    } else if (kind ==
               "pivots") {  // of a factorisation: row i was exchanged with a later one, from 1
      const std::int64_t length = sizes.empty() ? 1 : sizes.back();
      const at::Tensor rows = at::arange(length, at::TensorOptions(at::kLong));
      x = integers(0, std::max<std::int64_t>(length, 1)).remainder(length - rows).add(rows).add(1);
      x = x.to(at::kInt);
    } else if (kind == "permutation") {
      const std::int64_t length = sizes.empty() ? 1 : sizes.back();
      x = at::empty(sizes, at::kLong);
      at::Tensor rows = x.view({-1, std::max<std::int64_t>(length, 1)});
      for (std::int64_t r = 0; r < (length == 0 ? 0 : rows.size(0)); ++r)
        rows[r].copy_(at::randperm(std::max(limit, length), random, at::TensorOptions(at::kLong))
                          .narrow(0, 0, length));
    } else if (kind == "bool") {
      x = integers(0, 2).to(at::kBool);
    } else if (kind == "complex") {
      x = at::complex(rounded(normal()), rounded(normal()));
    } else if (kind == "spd") {
      const at::Tensor a = normal();
      x = at::matmul(a, a.mT())
              .div(static_cast<double>(std::max<std::int64_t>(sizes.back(), 1)))
              .add(at::eye(sizes.back(), doubles));
      x = rounded(x);
    } else if (kind == "triangular") {
      x = rounded(
          at::tril(normal().mul(0.25), -1) +
          at::diag_embed(at::rand(Shape(sizes.begin(), sizes.end() - 1), random, doubles).add(1)));
    }
    tensors.push_back(x);
  }
  return tensors;
}

torch::jit::Stack Instance::stack(const Tensors& operands) const {
  torch::jit::Stack stack;
  std::size_t next = 0;
  for (const Slot& slot : slots_) {
    if (slot.kind == Slot::Kind::attribute) {
      stack.push_back(slot.attribute);
    } else if (slot.kind == Slot::Kind::tensor) {
      const at::Tensor& x = operands[next++];
      stack.push_back(x.defined() ? c10::IValue(x) : c10::IValue());
    } else if (slot.kind == Slot::Kind::list) {
      c10::List<at::Tensor> list;
      for (std::size_t k = 0; k < slot.operands; ++k) list.push_back(operands[next++]);
      stack.emplace_back(std::move(list));
    } else {
      c10::List<std::optional<at::Tensor>> list;
      for (std::size_t k = 0; k < slot.operands; ++k, ++next)
        list.push_back(operands[next].defined() ? std::optional(operands[next]) : std::nullopt);
      stack.emplace_back(std::move(list));
    }
  }
  return stack;
}

Tensors call(const c10::OperatorHandle& op, torch::jit::Stack stack,
             std::vector<c10::IValue>* others) {
  op.callBoxed(&stack);
  Tensors results;
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      results.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& each : value.toTensorVector()) results.push_back(each);
    } else if (others != nullptr) {
      others->push_back(value);
    }
  }
  return results;
}

}  // namespace meshtorch::conformance
