// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/rule/op_rule.h>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using Operands = std::vector<std::optional<Shape>>;

std::string bound(RuleText text, const Operands& operands, const std::vector<Shape>& outputs = {}) {
  return to_string(parse_rule("aten::op", text, operands, outputs));
}

std::string error(const char* text, const Operands& operands,
                  const std::vector<Shape>& outputs = {}) {
  try {
    parse_rule("aten::op", RuleText::runtime(text), operands, outputs);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

static_assert(RuleText::check("ik,kj->ij; each") == nullptr);
static_assert(RuleText::check("j,ik,kj->ij; joint(0) each(1,2)") == nullptr);
static_assert(RuleText::check("nc,n,c->,") == nullptr);
static_assert(RuleText::check("->ij") == nullptr);
static_assert(RuleText::check("ik,kj") != nullptr);
static_assert(RuleText::check("ii->i") != nullptr);
static_assert(RuleText::check("a->a; each(1)") != nullptr);

TEST(OpRule, PrintsWhatItWasBoundTo) {
  EXPECT_EQ(bound("ik,kj->ij; each", {Shape{2, 3}, Shape{3, 4}}), "ab,bc->ac; each");
  EXPECT_EQ(bound("...,...->...; joint", {Shape{2, 3}, Shape{3}}), "ab,b->ab; joint");
  EXPECT_EQ(bound("...,...->...", {Shape{2, 1}, Shape{5, 1, 3}}), "a1,b1c->bac");
  EXPECT_EQ(bound("...*->...*", {Shape{2, 3, 4}}), "ab*->ab*");
  EXPECT_EQ(bound("...k,ok,o->...o; joint(2) each(0,1)", {Shape{7, 2, 3}, Shape{5, 3}, Shape{5}}),
            "abc,dc,d->abd; joint(2) each(0,1)");
  EXPECT_EQ(bound("nc,n,c->,", {Shape{2, 3}, Shape{2}, std::nullopt}), "ab,a,?->,");
  EXPECT_EQ(bound("n1,nc->n1; reduced", {Shape{2, 1}, Shape{2, 3}}), "a1,ab->a1; reduced");
  EXPECT_EQ(bound("bsh->(bs)h; each", {Shape{2, 3, 4}}), "abc->(ab)c; each");
  EXPECT_EQ(bound("(bs)h->bsh; each", {Shape{6, 4}}, {{2, 3, 4}}), "(ab)c->abc; each");
  EXPECT_EQ(bound("->ij", {}, {{2, 3}}), "->ab");
  EXPECT_EQ(bound("->", {Shape{}}), "->");
}

TEST(OpRule, ThePrintedTextBindsToItself) {
  const OpRule rule = parse_rule("aten::op", "j,ik,kj,q->ij; joint(0) each(1,2)",
                                 {Shape{4}, Shape{2, 3}, Shape{3, 4}, std::nullopt});
  const std::string text = to_string(rule);
  EXPECT_EQ(text, "a,bc,ca,?->ba; joint(0) each(1,2)");
  EXPECT_EQ(bound(RuleText::runtime(text), {Shape{4}, Shape{2, 3}, Shape{3, 4}, std::nullopt}),
            text);
}

TEST(OpRule, BindsSizes) {
  const OpRule rule = parse_rule("aten::op", "(bs)h,*->bs*", {Shape{6, 4}, Shape{5}}, {{2, 3, -1}});
  ASSERT_EQ(rule.factors.size(), 5u);
  EXPECT_EQ(rule.factors[0].size, 2);
  EXPECT_TRUE(rule.factors[0].even);
  EXPECT_EQ(rule.factors[1].size, 3);
  EXPECT_EQ(rule.factors[2].size, 4);
  EXPECT_FALSE(rule.factors[2].even);
  EXPECT_TRUE(rule.factors[3].whole);
  EXPECT_EQ(rule.factors[3].size, 5);
  EXPECT_EQ(rule.factors[4].size, -1);
}

TEST(OpRule, BroadcastDimsHaveNoFactor) {
  const OpRule rule = parse_rule("aten::op", "...,...->...", {Shape{1, 3}, Shape{0, 1}});
  EXPECT_TRUE((*rule.operands[0])[0].empty());
  EXPECT_TRUE((*rule.operands[1])[1].empty());
  EXPECT_EQ(rule.factors[rule.outputs[0][0][0]].size, 0);
  // A size of one that meets no other stays a factor: an axis of size one may lie on it.
  EXPECT_EQ(bound("...,...->...", {Shape{1, 3}, Shape{1, 3}}), "ab,ab->ab");
}

TEST(OpRule, FactorsApart) {
  EXPECT_EQ(bound("no,nc,oc->nc,oc,o/c; each(0)", {Shape{8, 5}, Shape{8, 3}, Shape{5, 3}}),
            "ab,ac,bc->ac,bc,b/c; each(0)");
  const OpRule rule = parse_rule("aten::op", "ab,b->a/b,b", {Shape{2, 3}, Shape{3}});
  ASSERT_EQ(rule.apart.size(), 2u);
  EXPECT_EQ(rule.apart[0], rule.operands[1]->at(0));
  EXPECT_TRUE(rule.apart[1].empty());
  EXPECT_TRUE(parse_rule("aten::op", "ab->a", {Shape{2, 3}}).apart.empty());
}

TEST(OpRule, SaysWhatIsWrongWithTheText) {
  const auto check = [](const char* text) { return std::string(RuleText::check(text)); };
  EXPECT_EQ(check("ab"), "-> is missing");
  EXPECT_EQ(check("aa->a"), "a letter is repeated within one operand");
  EXPECT_EQ(check("......->a"), "... is repeated within one operand");
  EXPECT_EQ(check("(a...)->a"), "... stands inside a group");
  EXPECT_EQ(check("((a)b)->a"), "a group stands inside a group");
  EXPECT_EQ(check("()->a"), "a group is empty");
  EXPECT_EQ(check("a)->a"), "a ) closes nothing");
  EXPECT_EQ(check("(ab->a"), "a group is not closed");
  EXPECT_EQ(check("(a1)->a"), "a broadcast dim 1 stands inside a group");
  EXPECT_EQ(check("a b->a"), "a dim is none of: letter, *, 1, ..., (letters)");
  EXPECT_EQ(check("ab/c->a"), "a dim is none of: letter, *, 1, ..., (letters)");
  EXPECT_EQ(check("ab->a/"), "no letter follows a /");
  EXPECT_EQ(check("ab->a/*"), "what follows a / is not a letter");
  EXPECT_EQ(check("ab->a/a"), "a letter behind a / is a dim of the same output");
  EXPECT_EQ(check("a->a; linear"), "a mark is none of: joint, each, reduced");
  EXPECT_EQ(check("a->a; eachx"), "a mark is none of: joint, each, reduced");
  EXPECT_EQ(check("a->a; each(x)"), "a mark's list is not of the form (0,2)");
  EXPECT_EQ(check("a->a; each(0"), "a mark's list is not closed");
  EXPECT_EQ(check("a->a; each(1)"), "a mark names an operand or output that does not exist");
  EXPECT_EQ(check("a,b->a; reduced(1)"), "a mark names an operand or output that does not exist");
}

TEST(OpRule, SaysWhatDoesNotFit) {
  EXPECT_EQ(error("ab", {}), "[aten::op] -> is missing in rule \"ab\"");
  EXPECT_EQ(error("ab->a", {}), "[aten::op] got 0 operands, expected 1 in rule \"ab->a\"");
  EXPECT_EQ(error("ab->a", {Shape{2, 3}}, {{2}, {2}}),
            "[aten::op] got 2 outputs, expected 1 in rule \"ab->a\"");
  EXPECT_EQ(error("ab->a", {Shape{2}}),
            "[aten::op] operand 0: got rank 1, expected 2 in rule \"ab->a\"");
  EXPECT_EQ(error("...ab->a", {Shape{2}}),
            "[aten::op] operand 0: got rank 1, expected at least 2 in rule \"...ab->a\"");
  EXPECT_EQ(
      error("ik,kj->ij", {Shape{2, 3}, Shape{4, 5}}),
      "[aten::op] operand 1 dim 0: got size 4 for factor k, expected 3 in rule \"ik,kj->ij\"");
  EXPECT_EQ(error("a1->a", {Shape{2, 3}}),
            "[aten::op] operand 0 dim 1: got size 3, expected 1 in rule \"a1->a\"");
  EXPECT_EQ(error("a->ab", {Shape{2}}),
            "[aten::op] output 0 dim 1: factor b has no size in rule \"a->ab\"; give the outputs' "
            "shapes");
  EXPECT_EQ(
      error("ab->(ab)", {Shape{2, 3}}, {{7}}),
      "[aten::op] output 0 dim 0: got size 7 for group (ab), expected 6 in rule \"ab->(ab)\"");
  EXPECT_EQ(error("a,?->a", {Shape{2}, Shape{2}}),
            "[aten::op] operand 1: got a tensor where none may be in rule \"a,?->a\"");
}

}  // namespace
}  // namespace meshtorch
