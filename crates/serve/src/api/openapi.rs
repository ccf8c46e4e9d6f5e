//! `GET /openapi.json`: the paths, from the list that requests are led by, and their bodies, from the tables that they are read by.

use serde_json::{Map, Value, json};

use crate::{
    endpoint::{Access, Endpoint},
    fields::table::{self, Field, Of, Table, decoding},
    limits::Limits,
};

/// Returns the description of endpoints.
pub fn document(endpoints: &[&Endpoint], limits: &Limits) -> Value {
    let mut paths = Map::new();
    for (endpoint, path, name) in endpoints.iter().flat_map(|endpoint| paths_of(endpoint)) {
        let mut operation = json!({
            "operationId": name,
            "responses": {
                "200": {"description": "served"},
                "default": {"description": "refused", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/error"}}}},
            },
        });
        if let Some(schema) = &endpoint.schema {
            let schema = object(schema.table, schema.required, limits);
            operation["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": schema}}});
        }
        if endpoint.access == Access::Keys {
            operation["security"] = json!([{"key": []}]);
        }
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[endpoint.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "demask", "version": env!("CARGO_PKG_VERSION")},
        "paths": Value::Object(paths),
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"error": envelope(), "message": object(table::OF_MESSAGE, &["role"], limits)},
        },
    })
}

/// The paths of an endpoint, each with its name.
fn paths_of(endpoint: &Endpoint) -> impl Iterator<Item = (&Endpoint, &'static str, &'static str)> {
    endpoint.paths.iter().map(move |(path, name)| (endpoint, *path, *name))
}

/// Schema of every refusal.
fn envelope() -> Value {
    let maybe = json!({"type": ["string", "null"]});
    json!({"type": "object", "required": ["error"], "properties": {"error": {
        "type": "object",
        "required": ["message", "type", "param", "code"],
        "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "param": maybe, "code": maybe},
    }}})
}

/// An object with the fields of a table, and no others.
fn object(table: Table, required: &[&str], limits: &Limits) -> Value {
    let mut properties = Map::new();
    for field in table.iter().copied().flatten() {
        match field.of {
            Of::Decoding => properties.extend(decoding().map(|option| {
                let json = json!({"type": types(option.kind.json()), "description": option.about});
                (option.name.to_owned(), json)
            })),
            Of::Elsewhere(_) => {}
            _ => drop(properties.insert(field.name.to_owned(), value(field, limits))),
        }
    }
    // Names that clients add to these are passed over.
    let open = properties.contains_key("include_usage");
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": open})
}

/// Returns the types of an option's value, null included. The library checks the items of a list.
fn types(json: &[&str]) -> Value {
    json.iter().chain(&["null"]).copied().collect()
}

/// Schema of a field's value.
fn value(field: &Field, limits: &Limits) -> Value {
    let number = |of: &str, least: Value, most: Value| json!({"type": [of, "null"], "minimum": least, "maximum": most});
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let mut schema = match field.of {
        Of::Text => json!({"type": ["string", "null"]}),
        Of::Switch => json!({"type": ["boolean", "null"]}),
        Of::Count(least, most) => number("integer", json!(least), json!(most(limits))),
        Of::Integer(least, most) => number("integer", json!(least), json!(most)),
        Of::Number(least, most) => number("number", json!(least), json!(most)),
        Of::Length => number("integer", json!(1), json!(limits.gen_length)),
        Of::Object(table) => {
            let mut object = object(table, &[], limits);
            object["type"] = json!(["object", "null"]);
            object
        }
        Of::Own(_) if field.name == "messages" => {
            json!({"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/message"}})
        }
        Of::Own(schema) => parsed(schema),
        Of::Only(values) => {
            json!({"enum": values.iter().map(|text| parsed(text)).chain([Value::Null]).collect::<Vec<_>>()})
        }
        Of::Hint | Of::Elsewhere(_) | Of::Decoding => json!({}),
    };
    if !field.default.is_empty() {
        schema["default"] = parsed(field.default);
    }
    schema["description"] = json!(field.about);
    schema
}

#[cfg(test)]
mod tests {
    use demask::LikelihoodOptions;

    use super::*;
    use crate::api::ENDPOINTS;

    /// All fields of all bodies, with the path to each.
    fn fields() -> Vec<(&'static Endpoint, &'static Field)> {
        let bodies = ENDPOINTS.iter().filter_map(|endpoint| Some((*endpoint, endpoint.schema.as_ref()?.table)));
        bodies
            .flat_map(|(endpoint, table)| table.iter().copied().flatten().map(move |field| (endpoint, field)))
            .collect()
    }

    #[test]
    fn defaults_and_schemas_are_json() {
        for (endpoint, field) in fields() {
            let readable = |text: &str| serde_json::from_str::<Value>(text).is_ok();
            assert!(field.default.is_empty() || readable(field.default), "{endpoint:?} {}", field.name);
            match field.of {
                Of::Own(schema) => assert!(readable(schema), "{endpoint:?} {}", field.name),
                Of::Only(values) => assert!(values.iter().all(|text| readable(text)), "{endpoint:?} {}", field.name),
                _ => {}
            }
            assert!(!field.about.is_empty() || matches!(field.of, Of::Decoding), "{endpoint:?} {}", field.name);
        }
    }

    #[test]
    fn names_stand_once_in_a_table() {
        for endpoint in ENDPOINTS {
            let Some(schema) = &endpoint.schema else { continue };
            let mut names: Vec<_> = schema.table.iter().copied().flatten().flat_map(table::names).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{endpoint:?}");
        }
    }

    #[test]
    fn limits_and_defaults_are_those_of_the_server() {
        let limits = Limits { choices: 3, gen_length: 77, ..Limits::default() };
        let document = document(ENDPOINTS, &limits);
        let of = |path: &str, name: &str| {
            document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"][name]
                .clone()
        };
        assert_eq!(
            (&of("/v1/chat/completions", "n")["maximum"], &of("/infill", "n")["default"]),
            (&json!(3), &json!(1))
        );
        assert_eq!(of("/v1/completions", "max_tokens")["maximum"], 77);
        let nested = of("/v1/chat/completions", "diffusion");
        assert_eq!(nested["properties"]["temperature"], of("/v1/chat/completions", "temperature"));
        assert_eq!(nested["properties"]["decoder"]["type"], json!(["string", "object", "null"]));
        assert_eq!(of("/v1/score", "draws")["default"], LikelihoodOptions::default().draws);
    }
}
