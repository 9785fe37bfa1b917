// The page that every backend serves: N letters at /bytes/N. Arguments: a directory, then ports and paths.
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

public class Page extends HttpServlet {
    private static final ConcurrentHashMap<Integer, byte[]> BODIES = new ConcurrentHashMap<>();

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        byte[] body = BODIES.computeIfAbsent(Integer.valueOf(request.getPathInfo().substring(1)), Page::body);
        response.setContentType("text/plain");
        response.setContentLength(body.length);
        response.getOutputStream().write(body);
    }

    private static byte[] body(int size) {
        byte[] body = new byte[size];
        for (int at = 0; at < size; at++) {
            body[at] = (byte) ('a' + at % 23);
        }
        return body;
    }

    public static void main(String[] arguments) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(arguments[0]);
        for (int at = 1; at < arguments.length; at++) {
            Connector connector = new Connector("org.apache.coyote.http11.Http11NioProtocol");
            if (arguments[at].startsWith("/")) {
                connector.setProperty("unixDomainSocketPath", arguments[at]);
            } else {
                connector.setProperty("address", "127.0.0.1");
                connector.setPort(Integer.parseInt(arguments[at]));
            }
            connector.setProperty("acceptCount", "4096");
            connector.setProperty("maxKeepAliveRequests", "-1");
            connector.setProperty("keepAliveTimeout", "3600000");
            connector.setThrowOnFailure(true);
            tomcat.setConnector(connector);
        }
        var context = tomcat.addContext("", arguments[0]);
        Tomcat.addServlet(context, "page", new Page());
        context.addServletMappingDecoded("/bytes/*", "page");
        tomcat.start();
        tomcat.getServer().await();
    }
}
