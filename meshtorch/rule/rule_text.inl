// SPDX-License-Identifier: Apache-2.0
//
// The grammar of RuleText, usable by the compiler.
#pragma once

namespace meshtorch {
namespace rule_text {

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Counts separated pieces; the empty text is one empty piece.
constexpr int count_pieces(std::string_view text) {
  int pieces = 1;
  for (char c : text) pieces += c == ',';
  return pieces;
}

// One operand: "b...(hd)*1".
constexpr const char* check_operand(std::string_view dims) {
  if (dims == "?") return nullptr;
  bool seen[128] = {};
  bool ellipsis = false;
  int group = -1;  // members so far, -1 outside
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const char c = dims[i];
    if (is_letter(c)) {
      if (seen[static_cast<int>(c)]) return "a letter is repeated within one operand";
      seen[static_cast<int>(c)] = true;
      if (group >= 0) ++group;
    } else if (c == '*') {
      if (group >= 0) ++group;
    } else if (c == '1') {
      if (group >= 0) return "a broadcast dim 1 stands inside a group";
    } else if (c == '(') {
      if (group >= 0) return "a group stands inside a group";
      group = 0;
    } else if (c == ')') {
      if (group < 1) return group < 0 ? "a ) closes nothing" : "a group is empty";
      group = -1;
    } else if (dims.substr(i, 3) == "...") {
      if (group >= 0) return "... stands inside a group";
      if (ellipsis) return "... is repeated within one operand";
      ellipsis = true;
      i += 2;
    } else {
      return "a dim is none of: letter, *, 1, ..., (letters)";
    }
  }
  return group >= 0 ? "a group is not closed" : nullptr;
}

// An output: dims, then perhaps "/cd".
constexpr const char* check_output(std::string_view dims) {
  const std::size_t slash = dims.find('/');
  if (slash == std::string_view::npos) return check_operand(dims);
  if (slash + 1 == dims.size()) return "no letter follows a /";
  for (char c : dims.substr(slash + 1)) {
    if (!is_letter(c)) return "what follows a / is not a letter";
    if (dims.substr(0, slash).find(c) != std::string_view::npos)
      return "a letter behind a / is a dim of the same output";
  }
  return check_operand(dims.substr(0, slash));
}

constexpr const char* check_operands(std::string_view list, bool outputs = false) {
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view dims = list.substr(0, comma);
    if (const char* problem = outputs ? check_output(dims) : check_operand(dims)) return problem;
    if (comma == std::string_view::npos) return nullptr;
    list.remove_prefix(comma + 1);
  }
}

// "(0,2)" at the front of `marks`; removes it.
constexpr const char* check_indices(std::string_view& marks, int limit) {
  marks.remove_prefix(1);
  while (true) {
    int index = 0;
    std::size_t digits = 0;
    while (digits < marks.size() && is_digit(marks[digits]))
      index = 10 * index + (marks[digits++] - '0');
    if (digits == 0 || digits > 3) return "a mark's list is not of the form (0,2)";
    if (index >= limit) return "a mark names an operand or output that does not exist";
    marks.remove_prefix(digits);
    if (marks.empty()) return "a mark's list is not closed";
    const char next = marks.front();
    marks.remove_prefix(1);
    if (next == ')') return nullptr;
    if (next != ',') return "a mark's list is not of the form (0,2)";
  }
}

// " joint(0) each(1,2)": what follows the semicolon.
constexpr const char* check_marks(std::string_view marks, int operands, int outputs) {
  while (!marks.empty()) {
    if (marks.front() == ' ') {
      marks.remove_prefix(1);
      continue;
    }
    int limit = operands;
    if (marks.starts_with("joint")) {
      marks.remove_prefix(5);
    } else if (marks.starts_with("each")) {
      marks.remove_prefix(4);
    } else if (marks.starts_with("reduced")) {
      marks.remove_prefix(7);
      limit = outputs;
    } else {
      return "a mark is none of: joint, each, reduced";
    }
    if (marks.empty()) return nullptr;
    if (marks.front() == '(') {
      if (const char* problem = check_indices(marks, limit)) return problem;
    } else if (marks.front() != ' ') {
      return "a mark is none of: joint, each, reduced";
    }
  }
  return nullptr;
}

}  // namespace rule_text

constexpr const char* RuleText::check(std::string_view text) {
  const std::size_t semicolon = text.find(';');
  const std::string_view dims = text.substr(0, semicolon);
  const std::size_t arrow = dims.find("->");
  if (arrow == std::string_view::npos) return "-> is missing";
  const std::string_view inputs = dims.substr(0, arrow);
  const std::string_view outputs = dims.substr(arrow + 2);
  if (const char* problem = rule_text::check_operands(inputs)) return problem;
  if (const char* problem = rule_text::check_operands(outputs, true)) return problem;
  if (semicolon == std::string_view::npos) return nullptr;
  return rule_text::check_marks(text.substr(semicolon + 1), rule_text::count_pieces(inputs),
                                rule_text::count_pieces(outputs));
}

}  // namespace meshtorch
