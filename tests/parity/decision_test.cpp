// SPDX-License-Identifier: Apache-2.0
//
// Reinforcement learning programs: REINFORCE (categorical sampling, discounted returns) and DQN (a replay
// buffer, a target network that is copied and averaged). The environments are carts with poles, one a row
// of the batch.
#include "train_compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
using mt::P;
using mt::Place;
using mt::Trained;
using mt::whole;

namespace {

constexpr double kGamma = 0.95;

// One Euler step of the cart and pole of Barto, Sutton and Anderson (1983). States (n, 4): position,
// velocity, angle, angular velocity; actions (n): 0 pushes left, 1 right. Returns next states and who
// fell.
std::pair<torch::Tensor, torch::Tensor> push(const torch::Tensor& state,
                                             const torch::Tensor& action) {
  auto columns = state.unbind(1);
  auto x = columns[0], x_dot = columns[1], theta = columns[2], theta_dot = columns[3];
  auto force = torch::where(action == 1, 10.0, -10.0).to(state.scalar_type());
  auto cos = theta.cos(), sin = theta.sin();
  auto push = (force + 0.05 * theta_dot.square() * sin) / 1.1;
  auto theta_acceleration =
      (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos.square() / 1.1));
  auto acceleration = push - 0.05 * theta_acceleration * cos / 1.1;
  auto next = torch::stack({x + 0.02 * x_dot, x_dot + 0.02 * acceleration, theta + 0.02 * theta_dot,
                            theta_dot + 0.02 * theta_acceleration},
                           /*dim=*/1);
  auto fell = (next.select(1, 0).abs() > 2.4).logical_or(next.select(1, 2).abs() > 0.21);
  return {next, fell};
}

nn::Sequential make_network() {
  return nn::Sequential(nn::Linear(4, 16), nn::ReLU(), nn::Linear(16, 16), nn::ReLU(),
                        nn::Linear(16, 2));
}

const std::vector<mt::PathRule> kMegatron{{"^0\\.", P("tp")}, {"^2\\.weight", P(whole, "tp")}};

// --- REINFORCE

Trained reinforce(const Place& place, std::int64_t batch_size, bool noise_from_outside) {
  torch::manual_seed(31);
  auto policy = make_network();
  place.module(*policy, kMegatron);
  torch::optim::Adam optimizer(policy->parameters(), torch::optim::AdamOptions(0.01));

  // The Gumbel-max trick with noise from outside, else libtorch's multinomial.
  const auto sample = [&](const torch::Tensor& probabilities) {
    if (!noise_from_outside) return probabilities.multinomial(1);
    auto gumbel = place.put(-torch::empty({batch_size, 2}).exponential_().log());
    return (probabilities.log() + gumbel).argmax(/*dim=*/1, /*keepdim=*/true);
  };

  Trained trained;
  for (int episode = 0; episode < 10; ++episode) {
    auto state = place.put(torch::empty({batch_size, 4}).uniform_(-0.1, 0.1));
    auto alive = torch::ones_like(state.select(1, 0));
    std::vector<torch::Tensor> log_probabilities, rewards, entropies;
    for (int t = 0; t < 12; ++t) {
      auto probabilities = torch::softmax(policy->forward(state), /*dim=*/1);
      auto action = sample(probabilities.detach());
      log_probabilities.push_back(probabilities.gather(1, action).squeeze(1).log());
      entropies.push_back(-(probabilities * probabilities.log()).sum(1));
      auto [next, fell] = push(state, action.squeeze(1));
      alive = alive * fell.logical_not();
      rewards.push_back(alive - 0.1 * next.select(1, 2).abs());
      state = next;
    }
    auto discounted = torch::zeros_like(rewards.back());
    std::vector<torch::Tensor> returns(rewards.size());
    for (std::size_t t = rewards.size(); t-- > 0;) {
      discounted = rewards[t] + kGamma * discounted;
      returns[t] = discounted;
    }
    auto advantage = torch::stack(returns);
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8);
    auto loss = -(torch::stack(log_probabilities) * advantage).sum(0).mean() -
                0.01 * torch::stack(entropies).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    trained.loss(loss);
    trained.keep("rewards", torch::stack(rewards));
  }
  trained.keep("policy", *policy);
  return trained;
}

// --- DQN

struct Replay {
  Replay(const Place& place, std::int64_t capacity)
      : states(place.put(torch::zeros({capacity, 4}), P())),
        next_states(place.put(torch::zeros({capacity, 4}), P())),
        actions(place.put(torch::zeros({capacity}, torch::kLong), P())),
        rewards(place.put(torch::zeros({capacity}), P())),
        done(place.put(torch::zeros({capacity}, torch::kBool), P())) {}
  torch::Tensor states, next_states, actions, rewards, done;
  std::int64_t size = 0;
};

// The environments walk by plain libtorch, as they do in practice; the networks, the replay buffer and
// the batches are on the mesh.
Trained dqn(const Place& place, std::int64_t batch_size) {
  torch::manual_seed(32);
  constexpr std::int64_t kCapacity = 48, kWalkers = 6;
  auto online = make_network(), target = make_network();
  place.module(*online, kMegatron);
  place.module(*target, kMegatron);
  const auto blend = [&](double tau) {
    torch::NoGradGuard no_grad;
    auto from = online->named_parameters();
    for (auto& item : target->named_parameters()) {
      if (tau == 1) {
        item.value().copy_(from[item.key()]);
      } else {
        item.value().mul_(1 - tau).add_(from[item.key()], tau);
      }
    }
  };
  blend(1);
  Replay replay(place, kCapacity);
  torch::optim::RMSprop optimizer(online->parameters(), torch::optim::RMSpropOptions(1e-3));

  const auto walk = [&](torch::Tensor state) {
    torch::NoGradGuard no_grad;
    auto greedy = online->forward(place.put(state)).argmax(1);
    auto explore = place.put(torch::rand({kWalkers}) < 0.3);
    auto random = place.put(torch::randint(2, {kWalkers}, torch::kLong));
    auto action = torch::where(explore, random, greedy);
    auto [next, fell] = push(place.put(state), action);
    auto slots = torch::arange(replay.size, replay.size + kWalkers).remainder(kCapacity);
    replay.states.index_copy_(0, slots, state);
    replay.next_states.index_copy_(0, slots, next);
    replay.actions.index_put_({slots}, action);
    replay.rewards.index_put_({slots}, 1.0 - fell.to(next.scalar_type()));
    replay.done.index_put_({slots}, fell);
    replay.size += kWalkers;
    auto restart = torch::empty({kWalkers, 4}).uniform_(-0.1, 0.1);
    return mt::full(torch::where(fell.unsqueeze(1), place.put(restart), next));
  };
  auto state = torch::empty({kWalkers, 4}).uniform_(-0.1, 0.1);
  for (int i = 0; i < 4; ++i) state = walk(state);

  Trained trained;
  for (int step = 0; step < 12; ++step) {
    state = walk(state);
    auto index =
        place.put(torch::randint(std::min(replay.size, kCapacity), {batch_size}, torch::kLong));
    auto states = replay.states.index_select(0, index);
    auto next_states = replay.next_states.index_select(0, index);
    auto actions = replay.actions.index_select(0, index);
    auto rewards = replay.rewards.index_select(0, index);
    auto done = replay.done.index({index});

    auto values = online->forward(states).gather(1, actions.unsqueeze(1)).squeeze(1);
    torch::Tensor expected;
    {
      torch::NoGradGuard no_grad;
      auto next_values = std::get<0>(target->forward(next_states).max(1));
      next_values.masked_fill_(done, 0);
      expected = rewards + kGamma * next_values;
    }
    auto loss = torch::smooth_l1_loss(values, expected);
    optimizer.zero_grad();
    loss.backward();
    for (auto& parameter : online->parameters()) parameter.mutable_grad().data().clamp_(-1, 1);
    optimizer.step();
    blend(step % 5 == 4 ? 1 : 0.05);
    trained.loss(loss);
  }
  trained.keep("replayed states", replay.states);
  trained.keep("replayed actions", replay.actions);
  trained.keep("online", *online);
  trained.keep("target", *target);
  return trained;
}

// The gradient of gather adds into a fresh tensor, which is whole; so is the replay buffer.
const mt::Allowed kMoves{.moves = true};

TEST(Decision, Reinforce) {
  mt::expect_libtorch(
      "reinforce",
      [](const Place& place, std::int64_t batch) {
        return reinforce(place, batch, /*noise_from_outside=*/true);
      },
      kMoves);
}
TEST(Decision, ReinforceWithMultinomial) {
  mt::expect_one_device(
      "reinforce with multinomial",
      [](const Place& place, std::int64_t batch) {
        return reinforce(place, batch, /*noise_from_outside=*/false);
      },
      kMoves);
}
TEST(Decision, Dqn) { mt::expect_libtorch("dqn", dqn, kMoves); }

}  // namespace
