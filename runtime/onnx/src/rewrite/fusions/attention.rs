//! Attention.

use super::super::matched::Match;
use super::super::replace::Replacement;
use super::template;
use crate::{Attribute, DType, Dim, Tensor, TensorSpec};

/// Scores are scaled on either side of the product or on both. Keys are transposed as a whole, from the layout in which heads
/// follow positions, or with the heads as part of the batch, as an exporter does. Groups of queries share heads that are
/// repeated. A bias of positions may come before the mask. Rows without any position are zero where `IsNaN` says so.
pub(super) const ATTENTION: &[&str] = &[
    "
    turned  = Transpose<perm=$order>(k)
            | Reshape(Transpose<perm=$order>(Reshape(Reshape(Expand(Unsqueeze(kg, _kg), _ke), _kr) | k, _flat)), _split)
            | Reshape(Transpose<perm=$order>(Reshape(Expand(Unsqueeze(kg, _kg), _ke), _flat)), _split)
            | Transpose<perm=$order>(Reshape(Expand(Unsqueeze(kg, _kg), _ke), _kr))
            | Reshape(Transpose<perm=$order>(kf), _split)
    queries = Mul(q, a) | Div(q, b) | q
    keys    = Mul(turned, c) | turned
    product = MatMul(queries, keys) | Einsum<equation=$scores>(queries, k)
    scaled  = Mul(product, d) | Div(product, e) | product
    biased  = Add(scaled, bias) | scaled
    masked  = Add(biased, mask) | Where(hidden, low, biased) | Where(visible, biased, low) | scaled
    wide    = Cast(masked) | masked
    soft    = Softmax<axis=$axis>(wide)
    half    = Cast(soft) | soft
    narrow  = Cast(half) | half
    nan     = IsNaN(soft)
    weights = Where(nan, 0, narrow) | narrow
    values  = Reshape(Expand(Unsqueeze(vg, _vg), _ve), _vr) | v
    y       = MatMul(weights, values) | Einsum<equation=$sums>(weights, v)
    a: number
    b: number
    c: number
    d: number
    e: number
    low: number
",
    // Keras 3: products of matrices whose batch has batch and heads, with dimensions of 1 in between.
    "
    qm      = Reshape(Transpose<perm=$q_order>(Unsqueeze(q, q_at)), _q_sizes)
    km      = Reshape(Transpose<perm=$k_order>(Unsqueeze(k, k_at)), _k_sizes)
    product = Squeeze(Reshape(MatMul(qm, Transpose<perm=[0, 2, 1]>(km)), _product_sizes), _product_at)
    scaled  = Mul(product, d) | Div(product, e) | product
    masked  = Add(Mul(scaled, shown), mask) | Add(scaled, mask) | Where(hidden, low, scaled)
            | Where(visible, scaled, low) | scaled
    wide    = Cast(masked) | masked
    soft    = Softmax<axis=$axis>(wide)
    narrow  = Cast(soft) | soft
    wm      = Reshape(Unsqueeze(narrow, _w_at), _w_sizes)
    vm      = Reshape(Transpose<perm=$v_order>(Unsqueeze(v, v_at)), _v_sizes)
    y       = Squeeze(Reshape(MatMul(wm, Transpose<perm=[0, 2, 1]>(vm)), _y_sizes), _y_at)
    q_at: number
    k_at: number
    v_at: number
    d: number
    e: number
    low: number
    shown: constant
",
];

pub(super) fn attention(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let (q, product) = (spec(found, "q")?, spec(found, "product")?);
    let rank = q.dims.len();
    if !(3..=4).contains(&rank) || product.dims.len() != rank {
        return Err(format!("its queries have {rank} dimensions"));
    }
    if !matches!(found.attribute("axis"), Some(Attribute::Int(axis)) if *axis == -1 || *axis == rank as i64 - 1) {
        return Err("its softmax is not over the last dimension".to_owned());
    }
    if found.has("kg") != found.has("vg") {
        return Err("only its keys or only its values are repeated".to_owned());
    }
    let (queries, keys) = match equation(found, "scores") {
        None if found.has("qm") => (heads_first(found, "q", [0, 2, 1, 3])?, heads_first(found, "k", [0, 2, 1, 3])?),
        Some(equation) => scores(equation)?,
        None => ("q".to_owned(), keys_in_order(found, q)?),
    };
    let values = values_name(found);
    if found.has("half") && spec(found, "half")?.dtype.size() < q.dtype.size() {
        return Err(format!("its weights are converted to {}", spec(found, "half")?.dtype));
    }
    let TensorSpec { dims, dtype } = spec(found, values)?;
    if dims.len() != rank || *dtype != q.dtype {
        return Err(format!("its `{values}` is {dtype} of {} dimensions, and its queries {}", dims.len(), q.dtype));
    }
    let (values, order) = match equation(found, "sums") {
        None if found.has("vm") => (heads_first(found, "v", [0, 2, 3, 1])?, None),
        Some(equation) => sums(equation).map(|(values, order)| (values, Some(order)))?,
        None => (values.to_owned(), None),
    };
    let scale = scale(found)?;
    let mask = mask(found, product)?.map(|mask| format!(", {mask}")).unwrap_or_default();
    let heads = if rank == 3 { ", q_num_heads=1, kv_num_heads=1" } else { "" };
    let precision = precision(found)?;
    let text = format!("Attention<scale={scale}{heads}{precision}>({queries}, {keys}, {values}{mask})");
    let text = order.map_or_else(|| text.clone(), |order| transposed(&text, order));
    Ok(template(&format!("y = {text}")))
}

fn spec<'m>(found: &Match<'m, '_>, name: &str) -> Result<&'m TensorSpec, String> {
    found.spec(name).ok_or_else(|| format!("the shape of its {name} is not known"))
}

/// Returns the attribute for a softmax in f32 inside of 16 bits.
fn precision(found: &Match<'_, '_>) -> Result<&'static str, String> {
    let (wide, own) = (spec(found, "wide")?.dtype, spec(found, "product")?.dtype);
    match wide {
        wide if wide == own => Ok(""),
        DType::F32 => Ok(", softmax_precision=1"),
        other => Err(format!("its softmax is computed in {other}")),
    }
}

/// Returns the equation of an Einsum of the match.
fn equation<'m>(found: &Match<'m, '_>, name: &str) -> Option<&'m str> {
    match found.attribute(name) {
        Some(Attribute::String(equation)) => Some(equation),
        _ => None,
    }
}

/// The letters of the operands and of the result of an Einsum, of four dimensions each.
fn letters(equation: &str) -> Option<[[char; 4]; 3]> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (operands, result) = equation.split_once("->")?;
    let (a, b) = operands.split_once(',')?;
    let four = |text: &str| <[char; 4]>::try_from(text.chars().collect::<Vec<_>>()).ok();
    Some([four(a)?, four(b)?, four(result)?])
}

/// Returns the order in which `own` has the letters `wanted`.
fn order(own: [char; 4], wanted: [char; 4]) -> Option<[usize; 4]> {
    let places = wanted.map(|letter| own.iter().position(|own| *own == letter));
    places.iter().all(Option::is_some).then(|| places.map(Option::unwrap_or_default))
}

fn transposed(text: &str, order: [usize; 4]) -> String {
    if order == [0, 1, 2, 3] { text.to_owned() } else { format!("Transpose<perm={order:?}>({text})") }
}

/// Returns the queries and keys of scores `batch,heads,queries,keys` that an Einsum computes.
fn scores(equation: &str) -> Result<(String, String), String> {
    let orders = letters(equation).and_then(|[q, k, [batch, heads, query, key]]| {
        let feature = q.into_iter().find(|letter| ![batch, heads, query].contains(letter))?;
        Some([order(q, [batch, heads, query, feature])?, order(k, [batch, heads, key, feature])?])
    });
    let [q, k] = orders.ok_or_else(|| format!("the Einsum `{equation}` is not that of queries and keys"))?;
    Ok((transposed("q", q), transposed("k", k)))
}

/// Returns the values of weights `batch,heads,queries,keys` that an Einsum sums, and the order in which the result has
/// `batch,heads,queries,features`.
fn sums(equation: &str) -> Result<(String, [usize; 4]), String> {
    let orders = letters(equation).and_then(|[[batch, heads, query, key], v, result]| {
        let feature = v.into_iter().find(|letter| ![batch, heads, key].contains(letter))?;
        Some((order(v, [batch, heads, key, feature])?, order([batch, heads, query, feature], result)?))
    });
    let (v, result) = orders.ok_or_else(|| format!("the Einsum `{equation}` is not that of weights and values"))?;
    Ok((transposed("v", v), result))
}

/// Returns a tensor of `batch,positions,heads,features` with the heads before the positions, if the match uses it in `order`
/// apart from a dimension of 1.
fn heads_first(found: &Match<'_, '_>, name: &str, order: [i64; 4]) -> Result<String, String> {
    let differs = || format!("its `{name}` has another order than batch, positions, heads and features");
    let rank = spec(found, name)?.dims.len() as i64;
    let at = found.number(&format!("{name}_at")).ok_or_else(differs)? as i64;
    let at = if at < 0 { at + rank + 1 } else { at };
    let Some(Attribute::Ints(perm)) = found.attribute(&format!("{name}_order")) else { return Err(differs()) };
    let without = perm.iter().filter(|axis| **axis != at).map(|axis| if *axis > at { axis - 1 } else { *axis });
    if rank == 4 && without.eq(order) { Ok(transposed(name, [0, 2, 1, 3])) } else { Err(differs()) }
}

/// Returns the product of the factors of the scores.
fn scale(found: &Match<'_, '_>) -> Result<String, String> {
    let factor = |name: &str| found.number(name).unwrap_or(1.0);
    let scale = factor("a") * factor("c") * factor("d") / (factor("b") * factor("e"));
    if scale > 0.0 && scale.is_finite() { Ok(format!("{scale:e}")) } else { Err(format!("its scale is {scale}")) }
}

/// Returns the keys with positions before features.
fn keys_in_order(found: &Match<'_, '_>, q: &TensorSpec) -> Result<String, String> {
    let Some(Attribute::Ints(order)) = found.attribute("order") else {
        return Err("its keys are not transposed".to_owned());
    };
    let name = ["kg", "kf", "k"].into_iter().find(|name| found.has(name)).unwrap_or("k");
    let rank = q.dims.len();
    let keys = spec(found, name)?;
    match (name, keys.dims.len(), &order[..]) {
        ("kf", 3, [0, 2, 1]) if rank == 4 => heads_of_batch(keys, q, spec(found, "turned")?),
        (_, dims, _) if dims != rank => Err(format!("its `{name}` has {dims} dimensions, and its queries have {rank}")),
        (_, _, [0, 2, 1]) | (_, 4, [0, 1, 3, 2]) => same_heads(found, &keys.dims[1]).map(|()| name.to_owned()),
        // Heads follow positions.
        ("k", 4, [0, 2, 3, 1]) => {
            same_heads(found, &keys.dims[2]).map(|()| format!("Transpose<perm=[0, 2, 1, 3]>({name})"))
        }
        _ => Err(format!("its keys are transposed by {order:?}")),
    }
}

/// Returns the name of the values before their heads are repeated.
fn values_name(found: &Match<'_, '_>) -> &'static str {
    if found.has("vg") { "vg" } else { "v" }
}

/// Checks that the values have as many heads as the keys, which a product of matrices need not.
fn same_heads(found: &Match<'_, '_>, heads: &Dim) -> Result<(), String> {
    let values = spec(found, values_name(found))?;
    let same = values.dims.len() != 4 || values.dims[1] == *heads;
    if same { Ok(()) } else { Err("its keys and its values have another number of heads".to_owned()) }
}

/// Returns the keys of `batch*heads,positions,features` with dimensions of their own for batch and heads.
fn heads_of_batch(keys: &TensorSpec, q: &TensorSpec, turned: &TensorSpec) -> Result<String, String> {
    let [_, Dim::Fixed(positions), Dim::Fixed(features)] = keys.dims[..] else {
        return Err(format!("the positions and features of its keys `{keys}` are not known"));
    };
    let (Some(heads), [_, own, a, b]) = (q.dims[1].fixed(), &turned.dims[..]) else {
        return Err("the number of its heads is not known".to_owned());
    };
    if *own != q.dims[1] || *a != Dim::Fixed(features) || *b != Dim::Fixed(positions) {
        return Err(format!("its keys are used as `{turned}`, which does not split `{keys}` into heads"));
    }
    Ok(format!("Reshape(kf, [-1, {heads}, {positions}, {features}])"))
}

/// The number from which on a sum with any score is the number itself, in f32.
const LOWEST: f64 = -1e30;

/// Why a mask of -inf is not that of the operator: there, a row without any position is zero, and here it is NaN.
const EMPTY: &str = "what hides a position is -inf, which leaves rows without any position undefined";

/// Returns whether what is added to the scores is known to be -inf at positions that it selects, possibly at all of a row.
fn may_hide_rows(found: &Match<'_, '_>, name: &str) -> bool {
    let Some(value) = found.value_of(name) else { return false };
    let infinite =
        |name: &str| found.constant_of(name).is_some_and(|tensor| tensor.to_f64().contains(&f64::NEG_INFINITY));
    if let Some(mask) = found.constant_of(value) {
        return !each_row(mask, |row| row.iter().any(|value| *value != f64::NEG_INFINITY));
    }
    let mut left = vec![value];
    for _ in 0..SOURCES_MAX {
        let Some(node) = left.pop().and_then(|value| found.producer_of(value)) else { continue };
        match node.op.as_str() {
            "Where"
                if node.inputs[1..].iter().any(|input| infinite(input))
                    && !hides_later_keys(found, &node.inputs[0], infinite(&node.inputs[1])) =>
            {
                return true;
            }
            "Add" | "Mul" | "Where" | "Cast" | "Expand" | "Identity" | "Reshape" | "Slice" | "Squeeze"
            | "Transpose" | "Unsqueeze" => {
                left.extend(node.inputs.iter().map(String::as_str));
            }
            _ => {}
        }
    }
    false
}

/// Returns whether a condition, which selects hidden positions if `hides`, and visible ones otherwise, hides at most the keys
/// after each query: it is made of a lower triangle.
fn hides_later_keys(found: &Match<'_, '_>, condition: &str, hides: bool) -> bool {
    let mut selects_triangle = true;
    let mut value = condition;
    for _ in 0..SOURCES_MAX {
        let Some(node) = found.producer_of(value) else { return false };
        match node.op.as_str() {
            "Trilu" => {
                let lower = matches!(node.attributes.get("upper"), Some(Attribute::Int(0)));
                return lower
                    && node.inputs.len() == 1
                    && selects_triangle != hides
                    && is_filled(found, &node.inputs[0]);
            }
            "Not" => selects_triangle = !selects_triangle,
            "Equal" if found.constant_of(&node.inputs[1]).is_some_and(|zero| zero.to_f64() == [0.0]) => {
                selects_triangle = !selects_triangle;
            }
            "Cast" | "Unsqueeze" => {}
            _ => return false,
        }
        value = &node.inputs[0];
    }
    false
}

/// Returns whether a value is a constant without zeros, or one that is expanded.
fn is_filled(found: &Match<'_, '_>, value: &str) -> bool {
    let source = found.producer_of(value).filter(|node| node.op == "Expand").map_or(value, |node| &node.inputs[0]);
    found.constant_of(source).is_some_and(|tensor| !tensor.is_empty() && !tensor.to_f64().contains(&0.0))
}

/// Returns whether a mask hides exactly the scores that are multiplied by 0, and none of a whole row: the others are multiplied
/// by 1.
fn hides_the_rest(found: &Match<'_, '_>) -> bool {
    let [Some(shown), Some(mask)] = ["shown", "mask"].map(|name| found.constant(name)) else { return false };
    let hides = |(shown, mask): (&f64, &f64)| match *shown {
        1.0 => *mask == 0.0,
        0.0 => *mask <= LOWEST,
        _ => false,
    };
    let (values, added) = (shown.to_f64(), mask.to_f64());
    shown.shape() == mask.shape() && values.iter().zip(&added).all(hides) && each_row(shown, |row| row.contains(&1.0))
}

/// The most nodes behind a mask that are looked at.
const SOURCES_MAX: usize = 32;

/// Returns what is added to the scores, with the dimensions that the operator expects.
fn mask(found: &Match<'_, '_>, product: &TensorSpec) -> Result<Option<String>, String> {
    let forms = [("mask", "mask"), ("hidden", "Where(hidden, low, 0)"), ("visible", "Where(visible, 0, low)")];
    let Some((name, added)) = forms.into_iter().find(|(name, _)| found.has(name)) else { return Ok(None) };
    match found.number("low") {
        Some(low) if low > LOWEST => {
            return Err(format!("what hides a position is {low}, which is too close to the scores"));
        }
        Some(f64::NEG_INFINITY) if !found.has("nan") && !each_row_has_a_position(found) => return Err(EMPTY.to_owned()),
        None if !found.has("nan") && may_hide_rows(found, "mask") => return Err(EMPTY.to_owned()),
        _ => {}
    }
    if found.has("shown") && !hides_the_rest(found) {
        return Err("the scores that its mask multiplies by 0 are not those that it hides".to_owned());
    }
    let mask = found.spec(name).ok_or("the shape of its mask is not known")?;
    let is_short = |mask: &TensorSpec| {
        let [own, keys] = [mask, product].map(|spec| spec.dims.last().and_then(Dim::fixed));
        own.is_some() && own != keys && (own == Some(1) || keys.is_some())
    };
    if [Some(mask), found.spec("bias")].into_iter().flatten().any(is_short) {
        // The operator hides the keys that a shorter mask lacks.
        return Err(format!("its mask `{mask}` has not a number for each key of its scores, `{product}`"));
    }
    let output = found.spec("masked").ok_or("the shape of its scores is not known")?;
    if output.dims != product.dims {
        return Err(format!("its mask `{mask}` changes the shape of its scores, `{product}`"));
    }
    let (added, dims) = match found.spec("bias") {
        Some(bias) => (format!("Add(bias, {added})"), bias.dims.len().max(mask.dims.len())),
        None if found.has("bias") => return Err("the shape of its bias is not known".to_owned()),
        None => (added.to_owned(), mask.dims.len()),
    };
    match (dims, product.dims.len()) {
        (2, _) | (4, 4) => Ok(Some(added)),
        (3, 4) => Ok(Some(format!("Unsqueeze({added}, [0])"))),
        (3, 3) => Ok(Some(format!("Unsqueeze({added}, [1])"))),
        (dims, _) => Err(format!("its mask has {dims} dimensions")),
    }
}

/// Returns whether a constant mask leaves each row at least one position.
fn each_row_has_a_position(found: &Match<'_, '_>) -> bool {
    let (name, seen) = if found.has("visible") { ("visible", 1.0) } else { ("hidden", 0.0) };
    found.constant(name).is_some_and(|mask| each_row(mask, |row| row.contains(&seen)))
}

/// Returns whether a condition holds for each row of a mask.
fn each_row(mask: &Tensor, holds: impl Fn(&[f64]) -> bool) -> bool {
    let row = mask.shape().last().copied().unwrap_or(1).max(1);
    mask.to_f64().chunks(row).all(holds)
}
