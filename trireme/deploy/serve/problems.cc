#include "trireme/deploy/serve/problems.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace trireme::serve {

std::string problems_markdown() {
  std::vector<http::Problem> all(std::begin(http::kProblems), std::end(http::kProblems));
  all.insert(all.end(), std::begin(kProblems), std::end(kProblems));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.status < b.status; });
  std::string text = "| status | code | when | what to do |\n|---|---|---|---|\n";
  for (const http::Problem& row : all)
    text += fmt::format("| {} | `{}` | {} | {} |\n", row.status, row.code, row.when, row.next);
  return text;
}

}  // namespace trireme::serve
