"""Ready vectors of any kind: hand-written digits, of which five classes are known."""

import numpy as np
from sklearn.datasets import load_digits

from bacon_gcd import CategoryDiscovery

X, true = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
labeled = (true < 5) & (rng.random(len(true)) < 0.5)
y = np.where(labeled, true, -1)  # -1 = unlabeled

model = CategoryDiscovery(
    n_classes=10, epochs=5, learning_rate=0.02, settings={"projector_width": 0}
)
model.fit(X, y)
print("classes:", list(model.classes_))
print("estimated sizes:", model.class_counts_.round().astype(int).tolist())
print(f"accuracy on unlabeled digits: {100 * model.score(X[~labeled], true[~labeled]):.0f} %")
