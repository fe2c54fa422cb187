// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/mesh/named_sharding.h>

#include <ostream>

namespace meshtorch {

std::string NamedSharding::to_string() const {
  return spec.to_string() + " on " + mesh.to_string();
}

std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding) {
  return out << sharding.to_string();
}

}  // namespace meshtorch
