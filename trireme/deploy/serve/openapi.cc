#include "trireme/deploy/serve/openapi.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/deploy/serve/routes.h"

namespace trireme::serve {
namespace {

using Json = nlohmann::json;

constexpr const char* kSchemas = R"json({
  "Predict": {"type": "object", "required": ["images"], "additionalProperties": false, "properties": {
    "images": {"type": "array", "minItems": 1, "items": {"type": "string",
      "description": "Base64 of a JPEG or PNG, or a data URL"}},
    "topk": {"type": "integer", "minimum": 1}}},
  "Predictions": {"type": "object", "properties": {
    "model": {"type": "string"},
    "predictions": {"type": "array", "items": {"type": "object", "properties": {
      "class_ids": {"type": "array", "items": {"type": "integer"}},
      "scores": {"type": "array", "items": {"type": "number"}},
      "label_names": {"type": "array", "items": {"type": "string"}},
      "error": {"type": "string", "description": "instead of the others: why this picture has no answer"}}}}}},
  "Error": {"type": "object", "properties": {"error": {"type": "object", "properties": {
    "code": {"type": "string"}, "message": {"type": "string"}}}}},
  "Infer": {"type": "object", "required": ["inputs"], "properties": {
    "id": {"type": "string"},
    "parameters": {"type": "object"},
    "inputs": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "object",
      "required": ["name", "shape", "datatype"], "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string", "enum": ["FP32", "BYTES"]},
        "parameters": {"type": "object"},
        "data": {"type": "array", "description": "numbers, or Base64 of pictures", "items": {}}}}},
    "outputs": {"type": "array", "items": {"type": "object", "properties": {
      "name": {"type": "string"}, "parameters": {"type": "object"}}}}}},
  "Inferred": {"type": "object", "properties": {
    "id": {"type": "string"},
    "model_name": {"type": "string"},
    "model_version": {"type": "string"},
    "outputs": {"type": "array", "items": {"type": "object"}}}},
  "InferError": {"type": "object", "properties": {"error": {"type": "string"}}}
})json";

Json reference(const char* schema) {
  return {{"$ref", fmt::format("#/components/schemas/{}", schema)}};
}

Json json_content(const char* schema) {
  return {{"application/json", {{"schema", reference(schema)}}}};
}

Json bytes_schema() {
  return {{"schema", {{"type", "string"}, {"format", "binary"}}}};
}

Json body_of(const Route& route) {
  Json content = json_content(route.page == Page::infer ? "Infer" : "Predict");
  if (route.page == Page::predict) content["image/jpeg"] = content["image/png"] = bytes_schema();
  content["application/octet-stream"] = bytes_schema();
  return {{"required", true}, {"content", std::move(content)}};
}

/// The names between braces of a path, and the query.
Json parameters_of(const Route& route) {
  Json parameters = Json::array();
  for (const std::string& part : split(route.path, '/'))
    if (part.starts_with('{'))
      parameters.push_back({{"name", part.substr(1, part.size() - 2)},
                            {"in", "path"},
                            {"required", true},
                            {"schema", {{"type", "string"}}}});
  if (route.page == Page::predict)
    parameters.push_back({{"name", "topk"}, {"in", "query"}, {"schema", {{"type", "integer"}, {"minimum", 1}}}});
  return parameters;
}

Json responses_of(const Route& route) {
  Json good{{"description", "the answer"}}, bad{{"description", "a refusal"}};
  if (route.page == Page::predict) good["content"] = json_content("Predictions");
  if (route.page == Page::infer) good["content"] = json_content("Inferred");
  if (route.page == Page::predict) bad["content"] = json_content("Error");
  if (route.page == Page::infer) bad["content"] = json_content("InferError");
  return {{"200", std::move(good)}, {"default", std::move(bad)}};
}

}  // namespace

std::string openapi_json() {
  Json paths = Json::object();
  for (const Route& route : kRoutes) {
    Json operation{{"summary", route.summary}, {"responses", responses_of(route)}};
    if (Json parameters = parameters_of(route); !parameters.empty()) operation["parameters"] = std::move(parameters);
    if (route.method == "POST") operation["requestBody"] = body_of(route);
    paths[std::string(route.path)][to_lower(route.method)] = std::move(operation);
  }
  const Json page{{"openapi", "3.1.0"},
                  {"info", {{"title", "trireme serve"}, {"version", kVersion}}},
                  {"paths", std::move(paths)},
                  {"components", {{"schemas", Json::parse(kSchemas)}}}};
  return page.dump(2) + "\n";
}

std::string openapi_html() {
  std::string rows;
  for (const Route& route : kRoutes)
    rows += fmt::format("<tr><td>{}</td><td><code>{}</code></td><td>{}</td></tr>\n", route.method, route.path,
                        route.summary);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>trireme serve</title></head>\n"
      "<body><h1>trireme serve {}</h1>\n<table>\n{}</table>\n"
      "<p><a href=\"/openapi.json\">openapi.json</a> describes bodies and answers.</p></body></html>\n",
      kVersion, rows);
}

}  // namespace trireme::serve
