"""Sparse codes: Hoyer, accuracy and classes on DBpedia. The paper draws figures and prints no numbers."""

from __future__ import annotations

from textspace.reproduce.table import Column, Row, Table

__all__ = ["DBPEDIA"]


def _dialled(share: float) -> Row:
    """A prior as sure as the recipe's, alpha + beta = 5, that wants this share of the dimensions off."""
    prior = {"prior.alpha": 5 * share, "prior.beta": 5 - 5 * share}
    return Row(f"hsvae-{share:g}", "hsvae", prior, in_paper=f"HSVAE, {share:g} off")


DBPEDIA = Table(
    name="sparse-dbpedia",
    about="Sparse codes and their dense rivals: how sparse, how accurate, and whether classes have gates of their own.",
    paper="Prokhorov et al. 2021, figures 2 to 4",
    corpus="dbpedia28k",
    columns=(
        Column("hoyer_samples", "Hoyer"),
        Column("sampled_classifier.sampled_accuracy", "accuracy"),
        Column("reconstruction", "reconstruction"),
        Column("sparsity.share_off", "share off"),
        Column("class_gates.gate_distance_beyond_chance", "gates beyond chance"),
        Column("hoyer_means", "Hoyer of means"),
        Column("sparsity.hoyer_dense", "dense floor"),
    ),
    rows=(
        Row("hsvae", "hsvae", seeds=3, in_paper="HSVAE"),
        Row("hsvae-public-code", "hsvae-public-code", seeds=3, in_paper="HSVAE, its public code"),
        Row("mat-vae", "mat-vae", seeds=3, in_paper="MAT-VAE"),
        Row("vae-dense", "vae-dense", seeds=3, in_paper="VAE"),
        Row("vae-dense-matched", "vae-dense", {"objective.kl_weight": 0.2}, seeds=3, in_paper="VAE, matched"),
        Row("vae-l1", "vae-l1", in_paper="VAE L1"),
        Row("vae-l2", "vae-l2", in_paper="VAE L2"),
        Row("ton-vae", "ton-vae", in_paper="described, never trained there"),
        _dialled(0.2),
        _dialled(0.5),
        *(
            Row(f"{name}-768", name, {"latent.dim": 768}, in_paper=f"{called}, 768")
            for name, called in (("hsvae", "HSVAE"), ("mat-vae", "MAT-VAE"), ("vae-dense", "VAE"))
        ),
    ),
    label=1,
    measures=("sparsity", "class_gates", "sampled_classifier"),
    by_epoch=(Column("hoyer_samples", "Hoyer"),),
    drawn=("hsvae", "hsvae-0.5", "hsvae-0.2", "mat-vae", "vae-dense"),
    samples=100,
    notes=(
        "The paper prints no numbers; the corpus has a sixth of its sentences.",
        "vae-dense-matched has a KL weight of 0.2, with which it reconstructs about as badly as hsvae.",
    ),
)
