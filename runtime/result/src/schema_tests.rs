//! The JSON Schemas of a record and of a summary in docs/schemas, generated from the types. They allow further keys,
//! because a later version of the program may add some.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{Record, Summary};
use flagperf_config::fixture::check_schema;

fn schema_of<T: schemars::JsonSchema>(title: &str, version: u32) -> Value {
    let generator = SchemaSettings::draft07().for_serialize().into_generator();
    let schema = generator.into_root_schema_for::<T>().to_value();
    // The descriptions come from the documentation of the types.
    let mut schema: Value = serde_json::from_str(&schema.to_string().replace("`None`", "null")).expect("JSON");
    schema["title"] = title.into();
    schema["properties"]["schema"]["const"] = json!(version);
    schema
}

#[test]
fn the_schema_of_the_record_is_current() {
    check_schema("record", &schema_of::<Record>("record.json: the result of one case", Record::SCHEMA));
}

#[test]
fn the_schema_of_the_summary_is_current() {
    let title = "summary.json: a case on several hosts or devices";
    check_schema("summary", &schema_of::<Summary>(title, Summary::SCHEMA));
}
