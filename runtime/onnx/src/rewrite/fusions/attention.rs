//! Attention, and the rotary embedding of its queries and keys.

use super::super::matched::Match;
use super::super::replace::Replacement;
use super::template;
use crate::{Attribute, Tensor, TensorSpec};

/// The cosines and sines of a rotary embedding.
macro_rules! angles {
    () => {
        "
    angles  = Concat<axis=-1>(angle, angle)
    cosine  = Cos(angles)
    cosines = Mul(cosine, factor) | cosine
    c       = Cast(cosines) | cosines
    cos     = Unsqueeze(c, _at) | c | cos_table
    sine    = Sin(angles)
    sines   = Mul(sine, factor) | sine
    s       = Cast(sines) | sines
    sin     = Unsqueeze(s, _at) | s | sin_table
    y       = Add(Mul(x, cos), Mul(turned, sin))
    factor: number
    cos_table: constant
    sin_table: constant
    angles: shared
    cosine: shared
    cosines: shared
    c: shared
    cos: shared
    sine: shared
    sines: shared
    s: shared
    sin: shared
        "
    };
}

/// Scores are scaled on either side of the product or on both. Keys are transposed as a whole, or from the layout in which
/// heads follow positions. An exporter splits keys of four dimensions to transpose them. Groups of queries share heads that
/// are repeated. Rows without any position are zero where `IsNaN` says so.
pub(super) const ATTENTION: &[&str] = &["
    turned  = Transpose<perm=$order>(k)
            | Reshape(Transpose<perm=$order>(Reshape(Reshape(Expand(Unsqueeze(kg, _kg), _ke), _kr) | k, _flat)), _split)
            | Transpose<perm=$order>(Reshape(Expand(Unsqueeze(kg, _kg), _ke), _kr))
    queries = Mul(q, a) | Div(q, b) | q
    keys    = Mul(turned, c) | turned
    product = MatMul(queries, keys)
    scaled  = Mul(product, d) | Div(product, e) | product
    masked  = Add(scaled, mask) | Where(hidden, low, scaled) | Where(visible, scaled, low) | scaled
    soft    = Softmax<axis=$axis>(masked)
    weights = Where(IsNaN(soft), 0, soft) | soft
    values  = Reshape(Expand(Unsqueeze(vg, _vg), _ve), _vr) | v
    y       = MatMul(weights, values)
    a: number
    b: number
    c: number
    d: number
    e: number
    low: number
"];

/// The second half of the features, negated, before the first. The angles of both halves are the same, which a table shows by
/// its values and a computation by a concatenation of a value with itself. Other nodes read them, too.
pub(super) const ROTARY: &[&str] = &[
    concat!(
        "
    first, second = Split<axis=$axis>(x) | Split<axis=$axis>(x, _sizes)
    turned        = Concat<axis=$axis>(Neg(second), first)
    ",
        angles!()
    ),
    concat!(
        "
    high   = Slice(x, from, _end, last) | Slice(x, from, _end, last, 1)
    low    = Slice(x, 0, to, last) | Slice(x, 0, to, last, 1)
    turned = Concat<axis=$axis>(Neg(high), low)
    from: number
    to: number
    last: number
    ",
        angles!()
    ),
];

pub(super) fn attention(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let spec = |name: &str| found.spec(name).ok_or_else(|| format!("the shape of its {name} is not known"));
    let (q, product) = (spec("q")?, spec("product")?);
    let rank = q.dims.len();
    if !(3..=4).contains(&rank) || product.dims.len() != rank {
        return Err(format!("its queries have {rank} dimensions"));
    }
    if !matches!(found.attribute("axis"), Some(Attribute::Int(axis)) if *axis == -1 || *axis == rank as i64 - 1) {
        return Err("its softmax is not over the last dimension".to_owned());
    }
    let key = if found.has("kg") { "kg" } else { "k" };
    let values = if found.has("vg") { "vg" } else { "v" };
    let keys = keys_in_order(found, key, rank)?;
    if found.has("kg") != found.has("vg") {
        return Err("only its keys or only its values are repeated".to_owned());
    }
    for name in [key, values] {
        let dims = spec(name)?.dims.len();
        if dims != rank {
            return Err(format!("its `{name}` has {dims} dimensions, and its queries have {rank}"));
        }
    }
    let scale = scale(found);
    let mask = mask(found, product)?.map(|mask| format!(", {mask}")).unwrap_or_default();
    let heads = if rank == 3 { ", q_num_heads=1, kv_num_heads=1" } else { "" };
    Ok(template(&format!("y = Attention<scale={scale}{heads}>(q, {keys}, {values}{mask})")))
}

/// Returns the product of the factors of the scores.
fn scale(found: &Match<'_, '_>) -> String {
    let factor = |name: &str| found.number(name).unwrap_or(1.0);
    let scale = factor("a") * factor("c") * factor("d") / (factor("b") * factor("e"));
    format!("{scale:e}")
}

/// Returns the keys with positions before features.
fn keys_in_order(found: &Match<'_, '_>, key: &str, rank: usize) -> Result<String, String> {
    let Some(Attribute::Ints(order)) = found.attribute("order") else {
        return Err("its keys are not transposed".to_owned());
    };
    match (&order[..], rank) {
        ([0, 1, 3, 2], 4) | ([0, 2, 1], 3 | 4) => Ok(key.to_owned()),
        // Heads follow positions.
        ([0, 2, 3, 1], 4) if key == "k" => Ok(format!("Transpose<perm=[0, 2, 1, 3]>({key})")),
        _ => Err(format!("its keys are transposed by {order:?}")),
    }
}

/// The number from which on a sum with any score is the number itself, in f32.
const LOWEST: f64 = -1e30;

/// Returns what is added to the scores, with the dimensions that the operator expects.
fn mask(found: &Match<'_, '_>, product: &TensorSpec) -> Result<Option<String>, String> {
    let forms = [("mask", "mask"), ("hidden", "Where(hidden, low, 0)"), ("visible", "Where(visible, 0, low)")];
    let Some((name, added)) = forms.into_iter().find(|(name, _)| found.has(name)) else { return Ok(None) };
    if let Some(low) = found.number("low")
        && !(low.is_finite() && low <= LOWEST)
    {
        let what =
            if low.is_finite() { "is too close to the scores" } else { "leaves rows without any position undefined" };
        return Err(format!("what hides a position is {low}, which {what}"));
    }
    let mask = found.spec(name).ok_or("the shape of its mask is not known")?;
    let output = found.spec("masked").ok_or("the shape of its scores is not known")?;
    if output.dims != product.dims {
        return Err(format!("its mask `{mask}` changes the shape of its scores, `{product}`"));
    }
    match (mask.dims.len(), product.dims.len()) {
        (2, _) | (4, 4) => Ok(Some(added.to_owned())),
        (3, 4) => Ok(Some(format!("Unsqueeze({added}, [0])"))),
        (3, 3) => Ok(Some(format!("Unsqueeze({added}, [1])"))),
        (dims, _) => Err(format!("its mask has {dims} dimensions")),
    }
}

/// RotaryEmbedding of `batch,heads,positions,features` with angles of `batch,1,positions,features`, whose halves are equal.
pub(super) fn rotary(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let x = found.spec("x").ok_or("the shape of its input is not known")?;
    let [batch, _, positions, features] = &x.dims[..] else {
        return Err(format!("its input `{x}` has {} dimensions instead of 4", x.dims.len()));
    };
    let features = features.fixed().filter(|size| size % 2 == 0).ok_or("the number of its features is not known")?;
    let half = (features / 2) as f64;
    let is_last = |axis: f64| axis == -1.0 || axis == 3.0;
    let axis = matches!(found.attribute("axis"), Some(Attribute::Int(axis)) if is_last(*axis as f64));
    let last = found.number("last").is_none_or(is_last);
    let halves = ["from", "to"].iter().all(|name| found.number(name).is_none_or(|at| at == half || at == -half));
    if !axis || !last || !halves {
        return Err("it does not turn the two halves of the features".to_owned());
    }
    let mut angles = Vec::new();
    for name in ["cos", "sin"] {
        let table = found.spec(name).ok_or_else(|| format!("the shape of its {name} is not known"))?;
        let is_full = matches!(&table.dims[..], [b, heads, p, f] if b == batch && heads.fixed() == Some(1) && p == positions && f.fixed() == Some(features));
        if !is_full {
            return Err(format!("its {name} is `{table}`, which is not that of each row of `{x}`"));
        }
        if found.constant(&format!("{name}_table")).is_some_and(|table| !has_equal_halves(table)) {
            return Err(format!("the two halves of its {name} differ"));
        }
        angles.push(format!("Slice(Squeeze({name}, [1]), [0], [{half}], [-1])"));
    }
    Ok(template(&format!("y = RotaryEmbedding<interleaved=0>(x, {}, {})", angles[0], angles[1])))
}

/// Returns whether both halves of the last dimension of a constant are the same.
fn has_equal_halves(table: &Tensor) -> bool {
    let row = table.shape().last().copied().unwrap_or(0);
    let values = table.to_f64();
    row > 0 && values.chunks_exact(row).all(|row| row[..row.len() / 2] == row[row.len() / 2..])
}
