//! The JSON Schema of a review in docs/schemas, generated from the types. It allows further keys, because a later
//! version of the program may add some.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::memory_tree::{MemoryTree, reviewed};
use super::{Review, SCHEMA};
use flagperf_config::fixture::check_schema;

fn review_schema() -> Value {
    let generator = SchemaSettings::draft07().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Review>().to_value();
    schema["title"] = "the JSON of `flagperf review`".into();
    schema["properties"]["schema"]["const"] = json!(SCHEMA);
    schema
}

#[test]
fn the_schema_of_a_review_is_current() {
    check_schema("review", &review_schema());
}

#[test]
fn a_review_is_valid_by_its_schema() {
    let (mut compiler, mut schemas) = (boon::Compiler::new(), boon::Schemas::new());
    compiler.add_resource("test.json", review_schema()).unwrap();
    let index = compiler.compile("test.json", &mut schemas).unwrap();
    let before = MemoryTree::new([("scripts/tiny/forward.rhai", "fn model_forward(m, b) { m.run([b.x])[0] }")]);
    let after = before
        .clone()
        .with("scripts/tiny/forward.rhai", "fn model_forward(m, b) { m.run([b.x.slice(0, 0, 1)])[1] }")
        .with("scripts/tiny/acme/forward.rhai", "fn engine_forward(m, b) { m.run([b.x])[0] }")
        .with("configs/tiny/vendor_config/acme_configurations.yaml", "flops: 1\n");
    let mut review = serde_json::to_value(reviewed(&before, &after, None)).unwrap();
    let errors = |review: &Value| schemas.validate(review, index).err().map(|error| format!("{error:#}"));
    assert_eq!(errors(&review), None);
    review["verdict"] = "fine".into();
    assert_ne!(errors(&review), None);
}
