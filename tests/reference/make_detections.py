"""Writes random annotations and detections, and pycocotools' figures for them (detections.json).

    python tests/reference/make_detections.py

They include crowds, boxes of all ranges of area, an object whose area is not that of its box, equal scores, a category
without annotations, an image without any, and more than 100 detections of a category in one image.
"""

import contextlib
import io
import json
import random
from pathlib import Path

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

OUT = Path(__file__).with_name("detections.json")


def random_box(rng):
    side = rng.choice([12, 60, 180])
    width, height = rng.uniform(side / 2, side), rng.uniform(side / 2, side)
    return [round(v, 1) for v in (rng.uniform(0, 400), rng.uniform(0, 300), width, height)]


def near(rng, box):
    shift = 0.15 * rng.random() * max(box[2:])
    return [round(max(v + rng.uniform(-shift, shift), 1), 1) for v in box]


def main():
    rng = random.Random(7)
    annotations, detections = [], []
    for image in range(1, 13):
        for _ in range(0 if image == 5 else rng.randint(2, 9)):
            box = random_box(rng)
            area = round(box[2] * box[3] * rng.choice([1, 1, 0.4]), 1)
            annotations.append({"id": len(annotations) + 1, "image_id": image, "category_id": rng.choice([1, 3, 18]),
                                "bbox": box, "area": area, "iscrowd": int(rng.random() < 0.15)})
        for annotation in [a for a in annotations if a["image_id"] == image]:
            for _ in range(rng.randint(0, 3)):
                category = annotation["category_id"] if rng.random() < 0.9 else 44
                detections.append({"image_id": image, "category_id": category, "bbox": near(rng, annotation["bbox"]),
                                   "score": round(rng.random(), 1)})
        for _ in range(120 if image == 2 else 3):
            detections.append({"image_id": image, "category_id": 3, "bbox": random_box(rng), "score": round(rng.random(), 2)})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"images": [{"id": i} for i in range(1, 13)], "annotations": annotations,
                         "categories": [{"id": i} for i in (1, 3, 18, 44)]}
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(detections), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    row = lambda a, last: [a["image_id"], a["category_id"], *a["bbox"], *[a[key] for key in last]]
    rows = {"annotations": [row(a, ["area", "iscrowd"]) for a in annotations],
            "detections": [row(d, ["score"]) for d in detections],
            "figures": [float(value) for value in evaluation.stats]}
    lines = [f'"{key}": [\n' + ",\n".join(json.dumps(r) for r in value) + "\n]" for key, value in rows.items()]
    OUT.write_text("{" + ",\n".join(lines) + "}\n")


main()
