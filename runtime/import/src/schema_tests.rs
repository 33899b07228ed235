//! The JSON Schema of an import in docs/schemas, generated from the types.

use schemars::generate::SchemaSettings;
use serde_json::json;

use super::{ImportReport, SCHEMA};
use flagperf_config::fixture::check_schema;

#[test]
fn the_schema_of_an_import_is_current() {
    let generator = SchemaSettings::draft07().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<ImportReport>().to_value();
    schema["title"] = "the JSON of `flagperf import`".into();
    schema["properties"]["schema"]["const"] = json!(SCHEMA);
    check_schema("import", &schema);
}
