# fetch.pl AS HOST...: as client says, by LWP.
use LWP::UserAgent;
my $as = shift;
for my $host (@ARGV) {
    my $r = LWP::UserAgent->new(timeout => 30)->get("https://$host/seen/$as", Authorization => "Bearer $ENV{MINE}");
    my ($issuer) = ($r->header("Client-SSL-Cert-Issuer") // "") =~ /CN=([^\/]*)/;
    print "$host ", $r->is_success ? "ok $issuer" : "failed " . $r->status_line, "\n";
}
