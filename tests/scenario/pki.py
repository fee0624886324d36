"""Certificates for scenarios: an authority of their own, made anew by openssl(1) in each run."""
import pathlib, subprocess


def openssl(*args, cwd):
    r = subprocess.run(["openssl", *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=30)
    if r.returncode != 0:
        raise RuntimeError(f"openssl {args[0]}: {r.stderr}")


class Authority:
    def __init__(self, folder, name="ca"):
        self.folder, self.name = pathlib.Path(folder), name
        self.ca = self.folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
                "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
                "-keyout", f"{name}.key", "-out", self.ca, cwd=self.folder)

    def issue(self, name, sans, rsa=False, days=20):
        """NAME.pem and NAME.key; sans as "DNS:a,IP:127.0.0.1".  days below 0: expired."""
        algorithm = ["rsa:2048"] if rsa else ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        openssl("req", "-newkey", *algorithm, "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                "-out", f"{name}.csr", cwd=self.folder)
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={sans}\nbasicConstraints=CA:FALSE\n")
        when = ["-days", days]
        if days < 0:                    # openssl x509 makes none of the past: the ca command does
            (self.folder / "index.txt").write_text("")
            (self.folder / "ca.cnf").write_text(
                "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n"
                "policy=p\nunique_subject=no\n[p]\ncommonName=supplied\n")
            openssl("ca", "-batch", "-config", "ca.cnf", "-cert", self.ca, "-keyfile", f"{self.name}.key",
                    "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-extfile", f"{name}.ext",
                    "-in", f"{name}.csr", "-out", f"{name}.pem", "-notext", cwd=self.folder)
        else:
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", self.ca, "-CAkey", f"{self.name}.key",
                    "-CAcreateserial", *when, "-extfile", f"{name}.ext", "-out", f"{name}.pem", cwd=self.folder)
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"
