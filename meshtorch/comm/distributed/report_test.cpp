// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/report.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshtorch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Kind = Report::Kind;

// At places 1, 2, ... (or from `first` on); the digest is that of all texts so far.
Report at(Kind kind, const std::vector<std::string>& program, std::string why = "",
          std::uint64_t first = 1) {
  Report report{.kind = kind, .why = std::move(why), .events = {}};
  std::string before;
  for (const std::string& what : program) {
    before += what + ";";
    report.events[first] = {
        .sequence = first, .digest = std::hash<std::string>{}(before), .what = what};
    ++first;
  }
  return report;
}

TEST(Report, ReadsWhatItWrites) {
  const Report report =
      at(Kind::waited, {"all_reduce over dp of (dp=2), aten::mm", "barrier", ""}, "waited 3 s");
  const Report back = Report::parse(report.to_string());
  EXPECT_EQ(back.kind, Kind::waited);
  EXPECT_EQ(back.why, "waited 3 s");
  ASSERT_EQ(back.events.size(), 3u);
  for (const auto& [sequence, event] : report.events) {
    EXPECT_EQ(back.events.at(sequence).sequence, event.sequence);
    EXPECT_EQ(back.events.at(sequence).digest, event.digest);
    EXPECT_EQ(back.events.at(sequence).what, event.what);
  }
}

TEST(Report, KeepsALineALine) {
  const Report report = at(Kind::failed, {"one\ntwo"}, "a message\nof two lines");
  const Report back = Report::parse(report.to_string());
  EXPECT_EQ(back.why, "a message of two lines");
  ASSERT_EQ(back.events.size(), 1u);
  EXPECT_EQ(back.events.at(1).what, "one two");
}

TEST(Report, OfNothingIsAnAnswer) {
  EXPECT_EQ(Report::parse("").kind, Kind::answers);
  EXPECT_TRUE(Report::parse(Report{}.to_string()).events.empty());
}

TEST(Diagnose, ValuesWhereTheTextIsOne) {
  Report zero = at(Kind::differs, {"manual_seed"}), one = zero, two = zero;
  one.events[1].value = two.events[1].value = 7;
  one.events[1].digest = two.events[1].digest = zero.events[1].digest + 1;
  EXPECT_THAT(diagnose({{0, zero}, {1, Report::parse(one.to_string())}, {2, two}}, 3),
              AllOf(HasSubstr("differ at place 1"), HasSubstr("process 0: manual_seed of 0;"),
                    HasSubstr("processes 1, 2: manual_seed of 7;")));
}

TEST(Diagnose, WhoFailedByItself) {
  const std::string found = diagnose({{0, at(Kind::answers, {"a", "b"})},
                                      {1, at(Kind::failed, {"a"}, "[mm] out of memory")},
                                      {2, at(Kind::waited, {"a", "b"}, "waited 3 s")}},
                                     3);
  EXPECT_EQ(found, "process 1 failed: [mm] out of memory");
}

TEST(Diagnose, TheFirstPlaceAtWhichTheyDiffer) {
  const std::string found = diagnose({{0, at(Kind::differs, {"a", "b", "c"})},
                                      {1, at(Kind::answers, {"a", "x", "c"})},
                                      {2, at(Kind::answers, {"a", "b"})}},
                                     3);
  EXPECT_THAT(found, HasSubstr("the processes differ at place 2 of the program"));
  EXPECT_THAT(found, HasSubstr("processes 0, 2: b; process 1: x"));
}

// One had not come to that place when it reported.
TEST(Diagnose, SaysWhoDidNotGetThere) {
  const std::string found = diagnose({{0, at(Kind::differs, {"a", "b"})},
                                      {1, at(Kind::answers, {"a", "x"})},
                                      {2, at(Kind::answers, {"a"})}},
                                     3);
  EXPECT_THAT(found, HasSubstr("process 2: did not get there"));
}

// The digest covers all that came before: where the oldest place differs, the cause is older.
TEST(Diagnose, SaysWhereThePlaceIsForgotten) {
  const std::string found = diagnose(
      {{0, at(Kind::differs, {"b", "c"}, "", 7)}, {1, at(Kind::answers, {"x", "c"}, "", 7)}}, 2);
  EXPECT_THAT(found, HasSubstr("at or before place 7"));
}

TEST(Diagnose, WhoDoesNotAnswerAndWhoIsBehind) {
  const std::string found =
      diagnose({{0, at(Kind::waited, {"a", "b", "c"}, "waited 3 s for the others (the time-out)")},
                {2, at(Kind::answers, {"a"})}},
               4);
  EXPECT_THAT(found,
              AllOf(HasSubstr("process 0 waited 3 s for the others"),
                    HasSubstr("processes 1, 3 do not answer"),
                    HasSubstr("process 2 is behind, at place 1: a"), Not(HasSubstr("differ"))));
  EXPECT_THAT(diagnose({{0, at(Kind::waited, {"a"}, "waited")}}, 2),
              HasSubstr("process 1 does not answer"));
}

TEST(Diagnose, WhatTheEngineSaid) {
  EXPECT_EQ(diagnose({{0, at(Kind::engine, {"a"}, "reports of its engine: message truncated")},
                      {1, at(Kind::answers, {"a"})}},
                     2),
            "process 0 reports of its engine: message truncated");
}

}  // namespace
}  // namespace meshtorch
