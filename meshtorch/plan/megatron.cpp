// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/plan/megatron.h>

#include <algorithm>
#include <regex>
#include <set>
#include <tuple>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>

namespace meshtorch {
namespace {

using Leaves = std::vector<PathLeaf>;

// A dim of a leaf.
struct Place {
  std::size_t leaf, dim;
};

struct Candidate {
  int feature;
  std::vector<Place> places;
};

// Candidates of one kind, and what the report says of them.
struct Group {
  std::vector<Candidate> members;
  MegatronGroup report;
};

// "layers.3.mlp.0.weight" -> "layers.*.mlp.0.weight": the first number is that of a layer.
std::string layers_as_one(const std::string& path) {
  static const std::regex number("(^|\\.)[0-9]+(?=\\.|$)");
  return std::regex_replace(path, number, "$1*", std::regex_constants::format_first_only);
}

std::string_view kind_name(MegatronGroup::Kind kind) {
  switch (kind) {
    case MegatronGroup::Kind::heads:
      return "heads";
    case MegatronGroup::Kind::vocabulary:
      return "vocabulary";
    case MegatronGroup::Kind::hidden:
      return "hidden";
  }
  return "";
}

// "cut    hidden, 256, 2 times over tp=2: 1 + 1 collectives each", its dims below.
std::string describe(const MegatronGroup& group, const std::string& axis, std::int64_t size) {
  std::string out = text(group.cut ? "cut    " : "whole  ", kind_name(group.kind), ", ");
  out += group.pieces > 0 ? text(group.pieces, " x ", group.size / group.pieces)
                          : std::to_string(group.size);
  if (group.features > 1) out += text(", ", group.features, " times");
  if (group.cut) {
    out += text(" over ", axis, "=", size, ": ", group.cost.forward, " + ", group.cost.backward,
                " collectives each");
  } else {
    out += ": " + group.why;
  }
  for (const std::string& member : group.members) out += "\n         " + member;
  return out + "\n";
}

class Search {
 public:
  // The first `parameters` leaves are that, the others buffers.
  Search(std::string axis, const Mesh& mesh, const Leaves& leaves, std::size_t parameters,
         const Forward& forward)
      : axis_(std::move(axis)),
        size_(mesh.axis_size(axis_)),
        mesh_({{axis_, size_}}),
        leaves_(leaves),
        parameters_(parameters),
        forward_(forward) {
    for (const auto& [path, tensor] : leaves_) tensors_.push_back(tensor);
    find_ties();
  }

  MegatronReport run() {
    record_ = record_features(tensors_, forward_);
    std::vector<Group> groups = groups_of(candidates());
    for (Group& group : groups) judge(group);
    choose(groups);
    return report(groups);
  }

 private:
  void find_ties() {
    std::map<const void*, std::size_t> first;
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      first_.push_back(first.emplace(tensors_[i].unsafeGetTensorImpl(), i).first->second);
  }
  bool tied(std::size_t leaf) const { return first_[leaf] != leaf; }
  // A weight that counts: once, where it is tied.
  bool is_matrix(std::size_t leaf) const {
    const at::Tensor& tensor = tensors_[leaf];
    return leaf < parameters_ && tensor.dim() >= 2 && tensor.is_floating_point() && !tied(leaf);
  }

  // Features with a dim of a matrix, in order of the leaves.
  std::vector<Candidate> candidates() const {
    std::vector<Candidate> all;
    std::map<int, std::size_t> place;
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      for (std::size_t d = 0; d < static_cast<std::size_t>(tensors_[i].dim()); ++d) {
        const int feature = record_.graph.feature(record_.tensors[i], d);
        const auto [found, fresh] = place.emplace(feature, all.size());
        if (fresh) all.push_back({.feature = feature, .places = {}});
        all[found->second].places.push_back({i, d});
      }
    }
    std::erase_if(all, [&](const Candidate& candidate) { return elements(candidate) == 0; });
    return all;
  }

  std::int64_t elements(const Candidate& candidate) const {
    std::int64_t sum = 0;
    for (const Place& place : candidate.places) {
      if (is_matrix(place.leaf)) sum += tensors_[place.leaf].numel();
    }
    return sum;
  }

  std::int64_t matrices(const Group& group) const {
    std::int64_t count = 0;
    for (const Candidate& member : group.members) {
      count += std::ranges::count_if(member.places,
                                     [&](const Place& place) { return is_matrix(place.leaf); });
    }
    return count;
  }

  // Equal ones are of one kind: the same dims of other layers, with as many heads.
  using Signature = std::tuple<std::vector<std::string>, std::int64_t, std::string>;
  Signature signature(const Candidate& candidate) const {
    const FeatureGraph::Feature& feature = record_.graph.at(candidate.feature);
    std::set<std::string> parts;
    for (const Place& place : candidate.places)
      parts.insert(text(layers_as_one(leaves_[place.leaf].path), " dim ", place.dim));
    return {{parts.begin(), parts.end()}, feature.pieces, feature.whole_by};
  }

  static bool conflicts(const std::vector<Place>& a, const std::vector<Place>& b) {
    return std::ranges::any_of(a, [&](const Place& one) {
      return std::ranges::any_of(
          b, [&](const Place& other) { return one.leaf == other.leaf && one.dim != other.dim; });
    });
  }

  // Layers of one kind are one group, but where neighbours share a matrix (Linear after Linear) each is
  // for itself.
  std::vector<Group> groups_of(const std::vector<Candidate>& all) const {
    std::map<Signature, std::vector<Candidate>> by_signature;
    for (const Candidate& candidate : all) by_signature[signature(candidate)].push_back(candidate);
    std::vector<Group> groups;
    for (const auto& [kind, members] : by_signature) {
      bool apart = false;
      for (std::size_t i = 1; i < members.size(); ++i)
        apart = apart || conflicts(members[i - 1].places, members[i].places);
      for (std::size_t i = 0; i < (apart ? members.size() : 1); ++i)
        groups.push_back(
            make_group(apart ? std::vector{members[i]} : members, apart, std::get<0>(kind)));
    }
    std::ranges::stable_sort(groups, [](const Group& a, const Group& b) {
      return a.report.elements > b.report.elements;
    });
    return groups;
  }

  Group make_group(std::vector<Candidate> members, bool apart,
                   const std::vector<std::string>& names) const {
    Group group{.members = std::move(members), .report = {}};
    MegatronGroup& report = group.report;
    const FeatureGraph::Feature& feature = record_.graph.at(group.members[0].feature);
    report.kind = !feature.lookup_by.empty() ? MegatronGroup::Kind::vocabulary
                  : feature.pieces > 0       ? MegatronGroup::Kind::heads
                                             : MegatronGroup::Kind::hidden;
    report.members = names;
    if (apart || (group.members.size() == 1 && group.members[0].places.size() <= 4)) {
      report.members.clear();
      for (const Place& place : group.members[0].places)
        report.members.push_back(text(leaves_[place.leaf].path, " dim ", place.dim));
    }
    report.features = static_cast<std::int64_t>(group.members.size());
    report.pieces = feature.pieces;
    for (const Candidate& member : group.members) {
      report.elements += elements(member);
      for (const Place& place : member.places)
        report.size =
            std::max(report.size, tensors_[place.leaf].size(static_cast<std::int64_t>(place.dim)));
    }
    return group;
  }

  // Fills in `why` where the group cannot be cut, `cost` where it can.
  void judge(Group& group) {
    MegatronGroup& report = group.report;
    const FeatureGraph::Feature& feature = record_.graph.at(group.members[0].feature);
    if (!feature.whole_by.empty()) {
      report.why = feature.whole_by + " needs it whole";
    } else if (report.pieces % size_ != 0) {
      report.uneven = true;
      report.why = text(report.pieces, report.pieces == 1 ? " head or group" : " heads or groups",
                        " cannot be shared out to ", axis_, "=", size_);
    } else if (smallest(group) < size_) {
      report.why = text("a dim of ", smallest(group), " is smaller than ", axis_, "=", size_);
    } else if (conflicts(group.members[0].places, group.members[0].places)) {
      report.why = "a matrix has it on both dims";
    } else {
      report.cost = measure({group.members[0].places});
      if (!report.cost.moved.empty()) report.why = "would move: " + report.cost.moved.front();
    }
  }

  std::int64_t smallest(const Group& group) const {
    std::int64_t least = group.report.size;
    for (const Candidate& member : group.members) {
      for (const Place& place : member.places)
        least = std::min(least, tensors_[place.leaf].size(static_cast<std::int64_t>(place.dim)));
    }
    return least;
  }

  StepCost measure(const std::vector<std::vector<Place>>& cut) const {
    return measure_step(tensors_, specs(cut), mesh_, forward_);
  }

  std::vector<PartitionSpec> specs(const std::vector<std::vector<Place>>& cut) const {
    std::vector<PartitionSpec> all(leaves_.size());
    for (const auto& places : cut) {
      for (const Place& place : places) {
        std::vector<DimSpec> dims(place.dim + 1);
        dims[place.dim] = {axis_};
        all[place.leaf] = PartitionSpec::from(dims);
      }
    }
    return all;
  }

  // Fewest collectives for an element first; what would cut a matrix a second time stays whole.
  void choose(std::vector<Group>& groups) {
    std::vector<Group*> order;
    for (Group& group : groups) {
      if (group.report.why.empty()) order.push_back(&group);
    }
    const auto price = [](const Group* group) {
      const StepCost& cost = group->report.cost;
      return static_cast<double>(cost.forward + cost.backward) *
             static_cast<double>(group->report.features) /
             static_cast<double>(group->report.elements);
    };
    std::ranges::stable_sort(order,
                             [&](const Group* a, const Group* b) { return price(a) < price(b); });
    for (Group* group : order) take(*group);
  }

  void take(Group& group) {
    for (const auto& [places, owner] : cut_) {
      for (const Candidate& member : group.members) {
        if (!conflicts(member.places, places)) continue;
        group.report.why = "shares a matrix with " + owner + ", which costs less for what it cuts";
        return;
      }
    }
    std::vector<std::vector<Place>> all;
    for (const auto& [places, owner] : cut_) all.push_back(places);
    for (const Candidate& member : group.members) all.push_back(member.places);
    const StepCost cost = measure(all);
    if (!cost.moved.empty()) {
      group.report.why = "with what is cut already it would move: " + cost.moved.front();
      return;
    }
    const std::int64_t more = cost.forward + cost.backward - cost_.forward - cost_.backward;
    if (more > 2 * matrices(group)) {
      group.report.why = text("takes ", more, " collectives, more than two a matrix");
      return;
    }
    group.report.cut = true;
    group.report.why = "cut";
    cost_ = cost;
    for (const Candidate& member : group.members)
      cut_.emplace_back(member.places, group.report.members.front());
  }

  SpecTable::Entry entry(const Group& group, const Place& place) const {
    const at::Tensor& tensor = tensors_[place.leaf];
    const MegatronGroup& report = group.report;
    SpecTable::Entry entry;
    std::string note(kind_name(report.kind));
    if (!report.cut) note = "whole: " + report.why;
    if (report.cut) entry.spec = specs({{place}})[place.leaf];
    if (report.cut && tensor.dim() > 1) note = (place.dim == 0 ? "column, " : "row, ") + note;
    entry.note = note;
    if (report.cut && report.pieces > 0 && report.kind == MegatronGroup::Kind::heads)
      entry.heads = {report.pieces, static_cast<int>(place.dim)};
    return entry;
  }

  MegatronReport report(const std::vector<Group>& groups) const {
    MegatronReport out{.axis = axis_, .size = size_, .groups = {}, .entries = {}, .cost = cost_};
    for (const auto& [path, tensor] : leaves_) out.entries[path] = {};
    std::set<std::size_t> cut;
    for (const Group& group : groups) {
      out.groups.push_back(group.report);
      // That heads do not go round is for the reader of the match report, too.
      const bool told = group.report.kind == MegatronGroup::Kind::heads && group.report.uneven;
      if (!group.report.cut && !told) continue;
      for (const Candidate& member : group.members) {
        for (const Place& place : member.places) {
          SpecTable::Entry& mine = out.entries[leaves_[place.leaf].path];
          if (group.report.cut || mine.note.empty()) mine = entry(group, place);
          if (group.report.cut) cut.insert(place.leaf);
        }
      }
    }
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (!is_matrix(i)) continue;
      out.elements += tensors_[i].numel();
      if (cut.contains(i)) out.cut_elements += tensors_[i].numel();
    }
    return out;
  }

  const std::string axis_;
  const std::int64_t size_;
  const Mesh mesh_;
  const Leaves& leaves_;
  const std::size_t parameters_;
  const Forward& forward_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::size_t> first_;  // of the leaf's ties
  FeatureRecord record_;
  std::vector<std::pair<std::vector<Place>, std::string>> cut_;  // and a member's name
  StepCost cost_;
};

}  // namespace

MegatronReport MegatronRule::record(const torch::nn::Module& module, const Mesh& mesh,
                                    const Forward& forward) const {
  Leaves leaves;
  for (const auto& item : module.named_parameters()) leaves.push_back({item.key(), item.value()});
  const std::size_t parameters = leaves.size();
  for (const auto& item : module.named_buffers()) leaves.push_back({item.key(), item.value()});
  return Search(axis_, mesh, leaves, parameters, forward).run();
}

MegatronReport MegatronRule::record(const Leaves& leaves, const Mesh& mesh,
                                    const Forward& forward) const {
  return Search(axis_, mesh, leaves, leaves.size(), forward).run();
}

PolicyReport apply(const Policy& policy, torch::nn::Module& module, const Mesh& mesh,
                   const Forward& forward) {
  return apply(policy, module, mesh, PolicyHooks{.megatron = [&](const AutoMegatron& megatron) {
                 return MegatronRule(megatron.axis).record(module, mesh, forward).table();
               }});
}

std::string MegatronReport::to_string() const {
  std::vector<const MegatronGroup*> order;
  for (const MegatronGroup& group : groups) order.push_back(&group);
  std::ranges::stable_partition(order, [](const MegatronGroup* group) { return group->cut; });
  std::string out;
  for (const MegatronGroup* group : order) out += describe(*group, axis, size);
  return out + text(with_commas(cut_elements), " of ", with_commas(elements),
                    " elements of matrices are cut over ", axis, "=", size, ".\nA step takes ",
                    cost.forward, " collectives forward, ", cost.backward, " backward and ",
                    cost.small, " small ones, ", with_commas(cost.bytes), " bytes per device.\n");
}

}  // namespace meshtorch
