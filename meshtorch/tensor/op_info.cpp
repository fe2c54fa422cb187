// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/op_info.h>

#include <algorithm>
#include <set>

#include <torch/library.h>

namespace meshtorch {
namespace {

bool is_tensor_list(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>())
    return is_tensor_list(optional->getElementType());
  auto list = type->cast<c10::ListType>();
  if (!list) return false;
  c10::TypePtr element = list->getElementType();
  if (auto optional = element->cast<c10::OptionalType>()) element = optional->getElementType();
  return element->kind() == c10::TypeKind::TensorType;
}

bool is_tensor(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) return is_tensor(optional->getElementType());
  return type->kind() == c10::TypeKind::TensorType;
}

bool is_ignored(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>())
    return is_ignored(optional->getElementType());
  if (auto list = type->cast<c10::ListType>()) return is_ignored(list->getElementType());
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::StringType:
      return false;
    default:
      return true;
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

ReturnInfo analyse_return(const c10::FunctionSchema& schema, const c10::Argument& result) {
  ReturnInfo info;
  if (result.alias_info() == nullptr) return info;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || alias->beforeSets() != result.alias_info()->beforeSets()) continue;
    (result.alias_info()->isWrite() ? info.written_argument : info.viewed_argument) =
        static_cast<int>(i);
    break;
  }
  // Lists of views ("Tensor(a)[]") carry the set in the list's element.
  if (info.written_argument < 0 && info.viewed_argument < 0 && !schema.arguments().empty() &&
      schema.arguments()[0].alias_info() != nullptr) {
    info.viewed_argument = 0;
  }
  return info;
}

// The same arguments, but for those that `schema` writes keyword-only (out=).
bool same_without_out(const c10::FunctionSchema& schema, const c10::FunctionSchema& functional) {
  std::vector<const c10::Argument*> kept;
  for (const auto& argument : schema.arguments()) {
    if (!(argument.kwarg_only() && is_written(argument))) kept.push_back(&argument);
  }
  const auto& others = functional.arguments();
  return kept.size() == others.size() &&
         std::equal(kept.begin(), kept.end(), others.begin(), [](const auto* a, const auto& b) {
           return a->name() == b.name() && *a->type() == *b.type();
         });
}

// The functional op of the same name, less the underscore of an in-place one, and the same arguments. By
// those and not by the overload: pow_.Scalar takes an exponent, pow.Scalar a base, and transpose_ is the
// in-place form of transpose.int.
std::optional<c10::OperatorHandle> functional_of(const c10::FunctionSchema& schema,
                                                 const std::string& base) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name != base) continue;
    auto candidate = c10::Dispatcher::singleton().findSchema(name);
    if (candidate && !candidate->schema().is_mutable() &&
        same_without_out(schema, candidate->schema())) {
      return candidate;
    }
  }
  return std::nullopt;
}

// Ops that read an operand's memory though libtorch's tags do not say so.
bool reads_on_host(const std::string& name) { return name == "aten::_pack_padded_sequence"; }

OpKind kind_of(const std::string& name, bool out) {
  static const std::set<std::string> metadata{
      "aten::t_",        "aten::transpose_", "aten::squeeze_",    "aten::unsqueeze_",
      "aten::swapaxes_", "aten::resize_",    "aten::as_strided_", "aten::set_",
      "aten::swapdims_", "aten::resize_as_"};
  static const std::set<std::string> factories{
      "aten::empty_like", "aten::zeros_like", "aten::ones_like",         "aten::full_like",
      "aten::rand_like",  "aten::randn_like", "aten::randint_like",      "aten::new_empty",
      "aten::new_zeros",  "aten::new_ones",   "aten::new_empty_strided", "aten::new_full"};
  if (out) return OpKind::out;
  if (metadata.count(name)) return OpKind::metadata;
  if (factories.count(name)) return OpKind::factory;
  if (name == "aten::detach" || name == "aten::alias") return OpKind::alias;
  if (name == "aten::copy_") return OpKind::copy;
  if (name == "aten::fill_" || name == "aten::zero_") return OpKind::fill;
  return OpKind::generic;
}

}  // namespace

int OpInfo::argument(std::string_view wanted) const {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == wanted) return static_cast<int>(i);
  }
  return -1;
}

OpInfo analyse(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OpInfo info;
  info.name = toString(op.operator_name());
  info.random = op.hasTag(at::Tag::nondeterministic_seeded);
  info.needs_values = op.hasTag(at::Tag::data_dependent_output) ||
                      op.hasTag(at::Tag::dynamic_output_shape) || reads_on_host(info.name);
  bool out = false;
  for (const auto& argument : schema.arguments()) {
    ArgumentInfo each;
    each.name = argument.name();
    each.written = is_written(argument);
    each.kind = is_tensor_list(argument.type()) ? ArgumentKind::tensor_list
                : is_tensor(argument.type())    ? ArgumentKind::tensor
                                                : ArgumentKind::attribute;
    each.ignored = each.kind == ArgumentKind::attribute && is_ignored(argument.type());
    out |= each.written && argument.kwarg_only();
    info.writes |= each.written;
    info.arguments.push_back(std::move(each));
  }
  for (const auto& result : schema.returns())
    info.returns.push_back(analyse_return(schema, result));
  info.kind = kind_of(schema.name(), out);
  if (out) {
    info.functional = functional_of(schema, schema.name());
  } else if (info.writes && schema.name().back() == '_') {
    info.functional = functional_of(schema, schema.name().substr(0, schema.name().size() - 1));
  }
  info.base = info.functional ? toString(info.functional->operator_name()) : info.name;
  return info;
}

}  // namespace meshtorch
