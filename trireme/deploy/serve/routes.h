// Every path of the server, once: requests are matched against this table, and /openapi.json is made of it.
//
//   const Match match = match_route("GET", "/v2/models/lenet/ready");
//   if (match.route) …                                   // match.model is "lenet"
//   else refuse(match.allowed);                          // "": there is no such path with any method
#pragma once

#include <string>
#include <string_view>

namespace trireme::serve {

enum class Page {
  predict,
  health,
  metrics,
  openapi,
  docs,
  server_data,
  live,
  ready,
  model_data,
  model_ready,
  infer,
};

struct Route {
  Page page;
  std::string_view method;  ///< GET stands for HEAD too
  std::string_view path;    ///< {name}: a model's name; {version}: a number
  std::string_view summary;
};

inline constexpr Route kRoutes[] = {
    {Page::predict, "POST", "/v1/predict", "The best classes of one picture, or of several, if there is one model"},
    {Page::predict, "POST", "/predict", "The same"},
    {Page::predict, "POST", "/v1/models/{name}/predict", "The same by the model of this name"},
    {Page::health, "GET", "/healthz", "200, and 503 once the server was told to stop"},
    {Page::metrics, "GET", "/metrics", "Numbers for Prometheus"},
    {Page::openapi, "GET", "/openapi.json", "This description, for programs"},
    {Page::docs, "GET", "/docs", "This description, for people"},
    {Page::server_data, "GET", "/v2", "KServe v2: the server and its extensions"},
    {Page::live, "GET", "/v2/health/live", "KServe v2: 200 while the server runs"},
    {Page::ready, "GET", "/v2/health/ready", "KServe v2: 200, and 503 once the server was told to stop"},
    {Page::model_data, "GET", "/v2/models/{name}", "KServe v2: inputs and outputs of a model"},
    {Page::model_data, "GET", "/v2/models/{name}/versions/{version}", "The same"},
    {Page::model_ready, "GET", "/v2/models/{name}/ready", "KServe v2: whether a model is ready"},
    {Page::model_ready, "GET", "/v2/models/{name}/versions/{version}/ready", "The same"},
    {Page::infer, "POST", "/v2/models/{name}/infer", "KServe v2: scores for tensors or pictures"},
    {Page::infer, "POST", "/v2/models/{name}/versions/{version}/infer", "The same"},
};

struct Match {
  const Route* route = nullptr;
  std::string allowed = {};  ///< the methods of the path when there is no route
  std::string model = {};    ///< {name}, percent-decoded
  std::string version = {};
};

Match match_route(std::string_view method, std::string_view path);

}  // namespace trireme::serve
