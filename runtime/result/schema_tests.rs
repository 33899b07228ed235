//! The JSON Schema of a record in docs/schemas, generated from the types. It allows further keys, because a version of the
//! program may add some.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::Record;
use crate::config::schema_tests::check_schema;

fn record_schema() -> Value {
    let generator = SchemaSettings::draft07().for_serialize().into_generator();
    let schema = generator.into_root_schema_for::<Record>().to_value();
    // The descriptions come from the documentation of the types.
    let mut schema: Value = serde_json::from_str(&schema.to_string().replace("`None`", "null")).expect("JSON");
    schema["title"] = "record.json: the result of one case".into();
    schema["properties"]["schema"]["const"] = json!(Record::SCHEMA);
    schema
}

#[test]
fn the_schema_of_the_record_is_current() {
    check_schema("record", &record_schema());
}
